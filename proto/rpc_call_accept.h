#ifndef DDP_PROTO_RPC_CALL_ACCEPT_H
#define DDP_PROTO_RPC_CALL_ACCEPT_H

struct rpc_server;

/* Accepts calls: finds the caller, its permission and the method. Inside proto/ only. */

/* Arms one call. Each call that arrives arms the next one, until the server drains. */
void rpc_call_arm(struct rpc_server *server);

#endif
