#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CHECK_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CHECK_RPC_H

#include "proto/rpc_server.h"

/* The on_start of CheckNodes, `ddpctl check`; its on_end is node_query_end. */
void check_nodes(struct rpc_call *rpc, const void *request, void *user);

#endif
