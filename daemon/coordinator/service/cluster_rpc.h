#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CLUSTER_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CLUSTER_RPC_H

#include "proto/rpc_server.h"

/* The methods of ddp.v1.Cluster, which users call. The last row has no name. */
extern const struct rpc_method cluster_methods[];

#endif
