#ifndef DDP_DAEMON_COORDINATOR_SERVICE_MEMBERS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_MEMBERS_H

#include "daemon/coordinator/core/core.h"
#include "proto/rpc_server.h"

/* JoinRun: the hosts of a `ddpctl run` that have come together. Loop thread. */

struct service;
struct run;

void members_join(struct rpc_call *rpc, const void *request, void *user); /* on_start */
void members_sendable(struct rpc_call *rpc);
void members_end(struct rpc_call *rpc, bool cancelled);
void members_changed(struct service *s); /* a node */
void members_job_changed(struct service *s);
void members_push(struct service *s); /* sends what is due */
/* Fills procs, seat and turn, if the node belongs to a member. */
void members_describe(struct service *s, struct core_hello *hello);
void members_free(struct run *run);

#endif
