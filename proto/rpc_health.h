#ifndef DDP_PROTO_RPC_HEALTH_H
#define DDP_PROTO_RPC_HEALTH_H

struct rpc_server;

/* The standard health service, which every caller may use. Inside proto/ only. */

#define RPC_HEALTH_SERVICE "grpc.health.v1.Health"
void rpc_health_init(struct rpc_server *server);
void rpc_health_drain(struct rpc_server *server);

#endif
