#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CHECK_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CHECK_RPC_H

#include "proto/rpc_server.h"

void check_nodes(struct rpc_call *rpc, const void *request, void *user); /* CheckNodes: on_start */

#endif
