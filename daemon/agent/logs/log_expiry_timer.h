#ifndef DDP_DAEMON_AGENT_LOGS_LOG_EXPIRY_TIMER_H
#define DDP_DAEMON_AGENT_LOGS_LOG_EXPIRY_TIMER_H

#include <stddef.h>
#include <stdint.h>

struct uv_loop_s;

/* Removes this node's logs of finished jobs once they are old: runs a pass (log_expiry_pass.h) in a pool thread every
 * hour, the first one a minute after the start, and soon after a job was deleted. Loop thread. */

struct log_expiry_timer;
struct log_expiry_options {
    const char *log_dir, *node;
    const char *
        list; /* file with the deleted jobs whose logs are still to be removed; NULL: they are forgotten with the process */
    int64_t keep_ms; /* 0: for ever, unless the job is deleted */
    /* Returns the jobs whose logs stay, whatever their age; the timer frees the array. */
    int64_t *(*live)(void *ctx, size_t *count);
    void *ctx;
};

struct log_expiry_timer *log_expiry_timer_create(struct uv_loop_s *loop,
                                                 const struct log_expiry_options *options);
/* The job was deleted: its logs are removed as soon as none of its processes is left here, and each pass
 * tries again what could not be removed, even after a restart of the agent. */
void log_expiry_timer_delete(struct log_expiry_timer *t, int64_t job);
/* NULL is fine. A pass that is under way ends first: run the loop once more. */
void log_expiry_timer_free(struct log_expiry_timer *t);

#endif
