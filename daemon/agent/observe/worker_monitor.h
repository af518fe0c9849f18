#ifndef DDP_DAEMON_AGENT_OBSERVE_WORKER_MONITOR_H
#define DDP_DAEMON_AGENT_OBSERVE_WORKER_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/worker/usage.h"
#include "proto/ddp.pb-c.h"

/* Observes whether the workers of this node get on, and what they use. It samples their CPU time and the age of their output
 * once a second, or less often where reading /proc takes long. The coordinator hears of quiet workers
 * (Activity, worker_activity.h), every 5 s what each worker uses (UsageReport, worker_usage.h), and can ask for the details of a job's workers (Probe). A thread of libuv's
 * pool reads /proc and the log files, one reading at a time, so a reading that hangs stops only the monitor.
 * Loop thread. */

struct uv_loop_s;
struct worker_monitor;

struct monitored_worker { /* a live worker */
    int64_t job, spawn, pid;
    int64_t first_generation; /* with first_local_rank: where its output is (log_place.h) */
    int first_local_rank;
    int64_t stall_timeout_ms; /* of its job; 0: none */
    char *cgroup;             /* path; NULL: none. worker_monitor_set copies it */
};

struct worker_monitor_options {
    const char *log_dir, *node;
    MUST_CHECK enum err_code (*send)(void *ctx, const Ddp__V1__AgentUp *up, struct err *e);
    void *ctx;
    void (*add_gpus)(void *ctx, int64_t job, int64_t spawn,
                     struct usage *out); /* its GPUs; NULL: there are none */
    int64_t usage_ms;                    /* how often the coordinator hears what workers use; 0: 5000 */
};

struct worker_monitor *worker_monitor_create(struct uv_loop_s *loop,
                                             const struct worker_monitor_options *options);
void worker_monitor_set(struct worker_monitor *w, const struct monitored_worker *list,
                        size_t count); /* replaces the whole list */
void worker_monitor_reported(struct worker_monitor *w, int64_t job, int64_t spawn);
void worker_monitor_probe(struct worker_monitor *w, const Ddp__V1__Probe *probe);
/* A new session must be told everything, and knows of no probe. */
void worker_monitor_new_session(struct worker_monitor *w);
/* Sends nothing any more. Freed by the loop when a reading that is under way has ended. */
void worker_monitor_close(struct worker_monitor *w);

#endif
