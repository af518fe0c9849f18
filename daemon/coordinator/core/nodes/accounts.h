#ifndef DDP_DAEMON_COORDINATOR_CORE_NODES_ACCOUNTS_H
#define DDP_DAEMON_COORDINATOR_CORE_NODES_ACCOUNTS_H

#include "daemon/coordinator/core/model.h"

/* Users without an account on a node (`run_as: submitter`). */

/* Returns NULL if the job's user can run on the node, else the reason that the node gave. */
const char *accounts_problem(const struct node *node, const struct job *job);
/* Replaces the node's list: each heartbeat carries all of it. */
void accounts_set(struct core *core, struct node *node, const struct core_account *list, size_t count);
/* The node refused to start a worker of the job for this reason. */
void accounts_refused(struct core *core, struct node *node, const struct job *job, const char *why);

#endif
