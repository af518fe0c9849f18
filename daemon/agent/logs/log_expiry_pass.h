#ifndef DDP_DAEMON_AGENT_LOGS_LOG_EXPIRY_PASS_H
#define DDP_DAEMON_AGENT_LOGS_LOG_EXPIRY_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum log_fate {
    LOGS_STAY,
    LOGS_EXPIRE, /* they go once their newest file is older than keep_ms */
    LOGS_DELETE, /* they go now */
};

/* Removes the node's part (log_part.h) of <log_dir>/<job> of each job as its fate says. The logs of former clusters (log_cluster.h)
 * expire. Goes on after an entry that cannot be removed, and returns the first such error.
 * *removed is the number of jobs. A missing directory is fine. Any thread. */
MUST_CHECK enum err_code log_expiry_pass(const char *log_dir, const char *node, int64_t keep_ms,
                                         int64_t now_wall_ms, enum log_fate (*fate)(void *ctx, int64_t job),
                                         void *ctx, int *removed, struct err *e);
/* Whether log_dir has something that log_expiry_pass could remove for this job. Any thread. */
bool log_expiry_finds(const char *log_dir, const char *node, int64_t job);

#endif
