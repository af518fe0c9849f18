#ifndef DDP_DAEMON_AGENT_NODE_JOBS_H
#define DDP_DAEMON_AGENT_NODE_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/agent/agent_state.h"

/* Answers about the jobs of this node, from the wish and from what the supervisors know. The pointers named
 * `agent` are a struct agent: these functions are handed to other modules as callbacks. Loop thread. */

bool node_jobs_wants(void *agent, int64_t job); /* whether the job is in the wish */
/* Jobs that run here or may start here; the caller frees the array. A job may be in it twice. */
int64_t *node_jobs_live(void *agent, size_t *count);
/* No process writes to this worker's log any more, and none is about to. */
bool node_jobs_log_ended(void *agent, int64_t job, int64_t first_generation, int first_local_rank);
/* Sends the newest output of the workers; returns when it is due again (BOOTTIME ms). */
int64_t node_jobs_send_log_tails(struct agent *a, int64_t now);
void node_jobs_monitor(struct agent *a); /* tells the monitor which workers live */

#endif
