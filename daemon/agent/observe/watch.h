#ifndef DDP_DAEMON_AGENT_OBSERVE_WATCH_H
#define DDP_DAEMON_AGENT_OBSERVE_WATCH_H

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
struct watch;

struct watched { /* a live worker */
    int64_t job, spawn, generation, pid;
    int rank, local_rank;
    int64_t stall_timeout_ms; /* 0: none */
};

struct watch_options {
    const char *log_dir, *node;
    MUST_CHECK enum err_code (*send)(void *ctx, const Ddp__V1__AgentUp *up, struct err *e);
    void *ctx;
};

struct watch *watch_create(struct uv_loop_s *loop, const struct watch_options *options);
void watch_set(struct watch *w, const struct watched *list, size_t count); /* all that there are now */
void watch_reported(struct watch *w, int64_t job, int64_t spawn);
void watch_probe(struct watch *w, const Ddp__V1__Probe *probe);
void watch_session(struct watch *w); /* a new one: it must be told everything, and knows of no probe */
void watch_close(struct watch *w);   /* no more sends; freed once the loop has ended a reading in progress */

#endif
