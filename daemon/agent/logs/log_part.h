#ifndef DDP_DAEMON_AGENT_LOGS_LOG_PART_H
#define DDP_DAEMON_AGENT_LOGS_LOG_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A node's part of a job's log directory: generation_<N>/<node> and supervisor.<node>.log. Where agents share their log directory,
 * the other parts belong to the other agents: only they know whether the job still runs there. Any thread. */

/* Whether there is such a part. *newest_ms: its last change, wall clock; may be NULL. */
bool log_part_find(const char *job_dir, const char *node, int64_t *newest_ms);
/* Removes the part, and then the directories above it that are empty, up to job_dir. Ends at the first error. */
MUST_CHECK enum err_code log_part_remove(const char *job_dir, const char *node, struct err *e);

#endif
