#ifndef DDP_DAEMON_AGENT_LOGS_LOG_PART_H
#define DDP_DAEMON_AGENT_LOGS_LOG_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A node's part of a job's log directory: generation_<N>/<node> and supervisor.<node>.log. Where agents share their log directory,
 * the other parts belong to the other agents: only they know whether the job still runs there. Any thread. */

/* Whether `name` in the directory `at` is a job's log directory. Its name is a number, and it holds generations and logs of supervisors,
 * and nothing else: a user's directory may be called 2024, too. */
bool log_part_of_job(int at, const char *name, int64_t *job);
/* Whether there is such a part. *newest_ms: its last change, wall clock; may be NULL. */
bool log_part_find(const char *job_dir, const char *node, int64_t *newest_ms);
/* Removes the part, and then the directories above it that are empty, up to job_dir. Ends at the first error. */
MUST_CHECK enum err_code log_part_remove(const char *job_dir, const char *node, struct err *e);
/* Moves the part to a job's directory elsewhere in the same file system, which is made. Removes empty directories as above. */
MUST_CHECK enum err_code log_part_move(const char *job_dir, const char *node, const char *to, struct err *e);

#endif
