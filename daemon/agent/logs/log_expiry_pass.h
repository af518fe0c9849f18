#ifndef DDP_DAEMON_AGENT_LOGS_LOG_EXPIRY_PASS_H
#define DDP_DAEMON_AGENT_LOGS_LOG_EXPIRY_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Removes <log_dir>/<job> of jobs that are not wished here any more and whose newest file is older than
 * keep_ms. Other entries of the directory are not ours and stay, and so does a number that holds anything but
 * generations and messages of supervisors. One that cannot be removed does not keep the others. *removed
 * counts; a missing directory is fine. Any thread. */
MUST_CHECK enum err_code log_expiry_pass(const char *log_dir, int64_t keep_ms, int64_t now_wall_ms,
                                         bool (*wanted)(void *ctx, int64_t job), void *ctx, int *removed,
                                         struct err *e);

#endif
