#ifndef DDP_DAEMON_COORDINATOR_SERVICE_PROBE_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_PROBE_RPC_H

#include "proto/rpc_server.h"

/* The on_start of ProbeJob, `ddpctl why`; its on_end is node_query_end. */
void probe_job(struct rpc_call *rpc, const void *request, void *user);

#endif
