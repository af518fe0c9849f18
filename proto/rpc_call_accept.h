#ifndef DDP_PROTO_RPC_CALL_ACCEPT_H
#define DDP_PROTO_RPC_CALL_ACCEPT_H

struct rpc_server;

/* Accepting calls: who is calling, whether they may, and which method they call. Inside proto/ only. */

/* Lets one more call come in. Each call that comes in lets the next one in, until the server drains. */
void rpc_call_arm(struct rpc_server *server);

#endif
