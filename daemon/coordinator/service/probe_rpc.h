#ifndef DDP_DAEMON_COORDINATOR_SERVICE_PROBE_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_PROBE_RPC_H

#include "proto/rpc_server.h"

void probe_job(struct rpc_call *rpc, const void *request, void *user); /* ProbeJob: on_start */

#endif
