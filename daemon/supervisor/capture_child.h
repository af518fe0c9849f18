#ifndef DDP_DAEMON_SUPERVISOR_CAPTURE_CHILD_H
#define DDP_DAEMON_SUPERVISOR_CAPTURE_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/supervisor/protocol/log_place.h"
#include "daemon/supervisor/protocol/spawn_order.h"
#include "daemon/supervisor/report_reader.h"

/* The process that reads the curves of a worker which does not report metrics itself (daemon/capture/capture.h). It is a child of the
 * supervisor, under the job's account, and dies with it. It starts a moment after the worker, so that short commands do
 * without it; a command that has ended before and has written something gets it then. When the worker has ended, the process
 * reads the rest and ends; it has CAPTURE_REST_MS for that. A worker that reports itself wins: the process is killed. Without
 * the process there are no curves, and nothing else changes. Times are CLOCK_BOOTTIME ms. */
#define CAPTURE_DELAY_MS 100
#define CAPTURE_REST_MS 500

enum capture_state { CAPTURE_NONE, CAPTURE_DUE, CAPTURE_RUNS, CAPTURE_ENDS };

struct capture_child {
    enum capture_state state;
    int64_t at;  /* CAPTURE_DUE: when it starts; CAPTURE_ENDS: when it is killed */
    pid_t pid;   /* 0: none, or reaped */
    int fd;      /* its lines; -1: none */
    int end_fd;  /* open while the worker lives */
    int logs[2]; /* stdout.log and stderr.log, for reading; -1: none */
    struct report_reader reader;
    const char *source; /* where the curves come from, for users */
};

void capture_child_init(struct capture_child *c);
/* After the worker was forked. No order for it, or no log: nothing happens. */
void capture_child_plan(struct capture_child *c, const struct spawn_order *order,
                        const struct log_files *logs, int64_t now);
/* Starts it if it is due. Returns when that is; INT64_MAX: nothing is due. */
int64_t capture_child_tick(struct capture_child *c, const struct spawn_order *order, int64_t started_wall_ms,
                           int64_t now);
/* The worker has ended. Returns the time until which its last lines may come, or 0 if all have come. */
int64_t capture_child_finish(struct capture_child *c, const struct spawn_order *order,
                             int64_t started_wall_ms, int64_t now);
void capture_child_read(struct capture_child *c, size_t limit, void (*fn)(void *, const char *line),
                        void *ctx);
void capture_child_stop(struct capture_child *c); /* kills it */
void capture_child_reaped(struct capture_child *c, pid_t pid);

#endif
