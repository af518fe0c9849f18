#ifndef DDP_PROTO_RPC_SERVER_STATE_H
#define DDP_PROTO_RPC_SERVER_STATE_H

#include "proto/rpc_core.h"
#include "proto/rpc_creds.h"
#include "proto/rpc_gate.h"
#include "proto/rpc_listen.h"
#include "proto/rpc_server.h"

/* The server's state, which its parts share; and what they tell the server. Inside proto/ only. */

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
    uv_prepare_t turn;    /* runs while there are calls in `due` */
    struct rpc_call *due; /* calls whose next message is asked for at the end of this turn */
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

const struct rpc_service *rpc_server_find(const struct rpc_server *server, const char *service);
void rpc_server_call_freed(struct rpc_server *server);
void rpc_server_quiet(struct rpc_server *server); /* a call has closed */
void rpc_server_handle_closed(struct rpc_server *server);
/* Asks gRPC for the call's next message at the end of this turn of the loop, or with the call's next send. When gRPC is asked,
 * it tells the client at once how much it has read. With a send, both take one write and one wake of each thread on the way. */
void rpc_server_receive_later(struct rpc_call *call);

#endif
