#ifndef DDP_DAEMON_COORDINATOR_SERVICE_RENDEZVOUS_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_RENDEZVOUS_RPC_H

#include "proto/rpc_server.h"

/* The methods of ddp.v1.Rendezvous, which native workers call. The last row has no name. */
extern const struct rpc_method rendezvous_methods[];

#endif
