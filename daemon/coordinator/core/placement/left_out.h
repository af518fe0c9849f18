#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_LEFT_OUT_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_LEFT_OUT_H

#include "daemon/coordinator/core/model.h"

/* Nodes that a job leaves out for a while, because a worker of it could not run there although it runs on other nodes
 * (failure/node_fault.h). This is kept in memory only: a coordinator that restarts lets the job try the node again. */

/* Why the job leaves the node out now; NULL: it does not. */
const char *left_out_problem(const struct job *job, const struct node *node);
/* Leaves the node out: for 5 minutes, and each further time for twice as long, at most for 4 hours. A job that would have to be
 * stopped to try the node again leaves it out for as long as it runs. */
void left_out_add(struct core *core, struct job *job, const char *node, const char *why);
/* The node was gone and is back, so somebody may have mended it: all jobs try it again. */
void left_out_node_back(struct core *core, const char *node);
/* A user changes or restarts the job: it tries all nodes again. */
void left_out_forget(struct core *core, struct job *job);
void left_out_tick(struct core *core, struct job *job);
int64_t left_out_deadline(const struct job *job);
void left_out_notes(const struct core *core, const struct job *job, struct core_job_status *out);

#endif
