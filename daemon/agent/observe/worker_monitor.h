#ifndef DDP_DAEMON_AGENT_OBSERVE_WORKER_MONITOR_H
#define DDP_DAEMON_AGENT_OBSERVE_WORKER_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Whether the workers of this node get on: once a second, or less often where reading /proc takes long, their
 * CPU time and the age of their output. The coordinator hears of those that are quiet (Activity), and can ask
 * for all that is to be seen of a job's workers (Probe). /proc and log files are read by a thread of libuv's
 * pool, one reading at a time, so that one that hangs holds up nothing but the watch. Loop thread. */

struct uv_loop_s;
struct worker_monitor;

struct monitored_worker { /* a live worker */
    int64_t job, spawn, generation, pid;
    int rank, local_rank;
    int64_t stall_timeout_ms; /* 0: none */
};

struct worker_monitor_options {
    const char *log_dir, *node;
    MUST_CHECK enum err_code (*send)(void *ctx, const Ddp__V1__AgentUp *up, struct err *e);
    void *ctx;
};

struct worker_monitor *worker_monitor_create(struct uv_loop_s *loop,
                                             const struct worker_monitor_options *options);
void worker_monitor_set(struct worker_monitor *w, const struct monitored_worker *list,
                        size_t count); /* all that there are now */
void worker_monitor_reported(struct worker_monitor *w, int64_t job, int64_t spawn);
void worker_monitor_probe(struct worker_monitor *w, const Ddp__V1__Probe *probe);
void worker_monitor_new_session(
    struct worker_monitor *w); /* a new one: it must be told everything, and knows of no probe */
void worker_monitor_close(
    struct worker_monitor *w); /* no more sends; freed once the loop has ended a reading in progress */

#endif
