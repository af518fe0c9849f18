#ifndef DDP_DAEMON_COORDINATOR_SERVICE_MEMBERS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_MEMBERS_H

#include "daemon/coordinator/core/core.h"
#include "proto/rpc_server.h"

/* JoinRun: the hosts of one `ddpctl run`. Each host's ddpctl is a member and holds a stream. Loop thread. */

struct service;
struct run;

void members_join(struct rpc_call *rpc, const void *request, void *user); /* on_start */
void members_sendable(struct rpc_call *rpc);
void members_end(struct rpc_call *rpc, bool cancelled);
void members_changed(struct service *s);     /* a node or a member changed: all members get a new status */
void members_job_changed(struct service *s); /* the same, if the run's job is another one now */
void members_push(struct service *s);        /* sends the statuses that are due */
/* If the node belongs to a member, fills in procs, seat and turn from what its ddpctl said. */
void members_describe(struct service *s, struct core_hello *hello);
void members_free(struct run *run);

#endif
