#ifndef DDP_PROTO_RPC_SERVER_IMPL_H
#define DDP_PROTO_RPC_SERVER_IMPL_H

#include "proto/rpc_core.h"
#include "proto/rpc_creds.h"
#include "proto/rpc_gate.h"
#include "proto/rpc_server.h"

/* The server's parts, for rpc_server.c (life), rpc_call_accept.c and rpc_call.c (one call), rpc_listen.c (unix
 * sockets) and rpc_health.c.
 *
 * A call's life. It is armed (grpc_server_request_call) and arrives; its close notice is armed at once and
 * keeps the base reference, so that a call lives at least until gRPC has said how it ended. Then the auth
 * hook; then its message is read and the handler runs. Sends go one at a time from a queue, the last one
 * together with the status. Each outstanding operation holds a reference; with the last reference the call is
 * freed, and a draining server counts freed calls, since an operation on a queue that is shut down would
 * abort the process. gRPC may report the end of a call before its pending reads and writes: whatever comes
 * home after the close is thrown away. */

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
    uint64_t connection; /* its number at the gate; 0: it did not come by TCP */
    const struct rpc_service *service;
    const struct rpc_method *method;
    const ProtobufCMethodDescriptor *shape;
    void *request;
    struct outgoing *first, *last, *flying;
    size_t queued; /* bytes, the flying one included */
    bool receiving, sending, headers_sent, finish_asked, finish_sent, is_closed, started, wants_room;
    int status;
    char *status_text;
    void *user;
    void *identity;
    void (*identity_release)(void *identity);
};

struct unix_peer {
    uid_t uid;
    pid_t pid;
};

struct rpc_listener { /* a unix socket; rpc_listen.c */
    struct rpc_listener *next;
    struct rpc_server *server;
    uv_poll_t poll;
    char *path;
    int fd, lock_fd, spare_fd;
    bool polling;
};

struct rpc_server {
    struct rpc_server_options options;
    grpc_server *grpc;
    struct rpc_cq cq;
    const struct rpc_service *services[8];
    size_t service_count;
    struct rpc_service health;
    struct rpc_tls_source *tls[8];
    size_t tls_count;
    struct rpc_gate *gate; /* before the TCP ports; NULL: there are none */
    struct rpc_listener *listeners;
    struct unix_peer *unix_peers; /* by descriptor */
    size_t unix_peer_count;
    unsigned health_watchers;
    struct rpc_call *calls;
    size_t call_count; /* armed ones too: all that must be gone before the queue is shut down */
    size_t live_count; /* arrived and not closed */
    struct rpc_tag down;
    uv_timer_t grace;
    unsigned closing; /* loop handles still to close */
    bool is_started, is_draining, is_down, is_drained;
    void (*on_drained)(void *user);
    void *drained_user;
};

/* rpc_call_accept.c */
void rpc_call_arm(struct rpc_server *server); /* one more call may arrive */

/* rpc_call.c */
void rpc_call_start(struct rpc_call *call, const void *request);
void rpc_call_pump(struct rpc_call *call);
void rpc_call_receive(struct rpc_call *call);
void rpc_call_received(struct rpc_tag *tag, bool ok);
void rpc_call_sent(struct rpc_tag *tag, bool ok);
void rpc_call_closed(struct rpc_tag *tag, bool ok);
void rpc_call_drain(struct rpc_call *call); /* ends it when it is of the kind that drain ends */

/* rpc_server.c */
const struct rpc_service *rpc_server_find(const struct rpc_server *server, const char *service);
void rpc_server_call_freed(struct rpc_server *server);
void rpc_server_quiet(struct rpc_server *server); /* a call has closed */
void rpc_server_handle_closed(struct rpc_server *server);

/* rpc_listen.c */
void rpc_listener_start(struct rpc_listener *listener);
void rpc_listeners_close(struct rpc_server *server);
bool rpc_unix_peer(const struct rpc_server *server, int fd, struct unix_peer *out);

/* rpc_health.c */
#define RPC_HEALTH_SERVICE "grpc.health.v1.Health"
void rpc_health_init(struct rpc_server *server);
void rpc_health_drain(struct rpc_server *server);

#endif
