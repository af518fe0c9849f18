#ifndef DDP_DAEMON_AGENT_LOGS_LOG_LIMIT_TIMER_H
#define DDP_DAEMON_AGENT_LOGS_LOG_LIMIT_TIMER_H

#include <stddef.h>
#include <stdint.h>

struct uv_loop_s;

/* Enforces the limits of this node's worker logs: runs a pass (log_limit_pass.h) in a pool thread every two
 * seconds while jobs run. Loop thread. */

struct log_limit_timer;
struct log_limit_options {
    const char *log_dir, *node;
    int64_t per_job, total; /* bytes; 0: no limit */
    /* Returns the jobs that write logs or may start to; the timer frees the array. */
    int64_t *(*live)(void *ctx, size_t *count);
    void *ctx;
};

struct log_limit_timer *log_limit_timer_create(struct uv_loop_s *loop,
                                               const struct log_limit_options *options);
/* NULL is fine. A pass that is under way ends first: run the loop once more. */
void log_limit_timer_free(struct log_limit_timer *k);

#endif
