#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_USAGE_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_USAGE_RPC_H

#include "proto/ddp.pb-c.h"

struct agent_session;

/* Receives what the workers on the session's node use, passes it to the core, and stores it with the job's metrics. */
void usage_rpc_receive(struct agent_session *x, const Ddp__V1__UsageReport *m);

#endif
