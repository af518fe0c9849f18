#ifndef DDP_PROTO_RPC_CALL_STATE_H
#define DDP_PROTO_RPC_CALL_STATE_H

#include "proto/rpc_core.h"
#include "proto/rpc_server.h"

/* A call on the server's side, for rpc_call_accept.c and rpc_call.c. Inside proto/ only.
 *
 * The life of a call. It is armed (grpc_server_request_call) and arrives; its close notice is armed at once
 * and keeps the base reference, so that a call lives at least until gRPC has said how it ended. Then the auth
 * hook; then its message is read and the handler runs. Sends go one at a time from a queue, the last one
 * together with the status. Each outstanding operation holds a reference; with the last reference the call is
 * freed, and a draining server counts freed calls, since an operation on a queue that is shut down would
 * abort the process. gRPC may report the end of a call before its pending reads and writes; their results are
 * then ignored. */

struct outgoing {
    struct outgoing *next;
    grpc_byte_buffer *buffer;
    size_t size;
};

struct rpc_call {
    struct rpc_server *server;
    struct rpc_call *prev, *next; /* the server's calls, once arrived */
    grpc_call *grpc;
    unsigned refs;
    struct rpc_tag arrived, received, sent, closed;
    grpc_call_details details;    /* while armed */
    grpc_metadata_array metadata; /* while armed */
    grpc_byte_buffer *incoming;
    int was_cancelled;
    gpr_timespec deadline;
    struct rpc_peer peer;
    uint64_t connection; /* number of its connection at the gate; 0: it did not come by TCP */
    const struct rpc_service *service;
    const struct rpc_method *method;
    const ProtobufCMethodDescriptor *shape;
    void *request;
    struct outgoing *first, *last, *flying;
    size_t queued;             /* bytes, including the message that is being sent */
    struct rpc_call *due_next; /* rpc_server_receive_later */
    bool receive_due, due_listed;
    bool receiving, sending, headers_sent, finish_asked, finish_sent, is_closed, started, wants_room;
    int status;
    char *status_text;
    void *user;
    void *identity;
    void (*identity_release)(void *identity);
};

void rpc_call_start(struct rpc_call *call, const void *request);
void rpc_call_pump(struct rpc_call *call);
void rpc_call_receive(struct rpc_call *call);
void rpc_call_received(struct rpc_tag *tag, bool ok);
void rpc_call_sent(struct rpc_tag *tag, bool ok);
void rpc_call_closed(struct rpc_tag *tag, bool ok);
void rpc_call_drain(struct rpc_call *call); /* ends the call if it is of a kind that drain ends at once */

#endif
