#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LIST_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LIST_RPC_H

#include "proto/rpc_server.h"

/* The on_start of ListJobs (`ddpctl status`: jobs, totals and notes) and ListNodes. Loop thread. */
void list_jobs(struct rpc_call *rpc, const void *request, void *user);
void list_nodes(struct rpc_call *rpc, const void *request, void *user);

#endif
