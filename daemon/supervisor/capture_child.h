#ifndef DDP_DAEMON_SUPERVISOR_CAPTURE_CHILD_H
#define DDP_DAEMON_SUPERVISOR_CAPTURE_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/supervisor/protocol/log_place.h"
#include "daemon/supervisor/protocol/spawn_order.h"
#include "daemon/supervisor/report_reader.h"

/* The process that reads the curves of a worker that does not report metrics itself (daemon/capture/capture.h). It is a child of
 * the supervisor, runs under the job's account, and ends when the supervisor ends.
 *
 * The supervisor starts it CAPTURE_DELAY_MS after the worker. If the worker ends earlier, the process starts at that moment, but
 * only if there is something to read. After the end of the worker the process reads the rest and ends; it is killed if it
 * needs longer than CAPTURE_REST_MS, or after a failure CAPTURE_HURRY_MS. It is also killed when the worker reports a metric itself. If the process fails, the
 * worker has no curves; nothing else changes. Times are CLOCK_BOOTTIME ms. */
#define CAPTURE_DELAY_MS 100
#define CAPTURE_REST_MS 5000 /* a machine that swaps or is overloaded takes a second */
#define CAPTURE_HURRY_MS 500 /* the restart waits for it, and the next worker reports the lost steps again */

enum capture_state { CAPTURE_NONE, CAPTURE_DUE, CAPTURE_RUNS, CAPTURE_ENDS };

struct capture_child {
    enum capture_state state;
    int64_t at;  /* CAPTURE_DUE: when the process starts; CAPTURE_ENDS: when it is killed */
    pid_t pid;   /* 0: none, or reaped */
    int fd;      /* the process writes its lines to it; -1: none */
    int end_fd;  /* closing it tells the process that the worker has ended */
    int logs[2]; /* stdout.log and stderr.log, for reading; -1: none */
    struct report_reader reader;
    const char *source; /* where the curves come from, for users */
};

void capture_child_init(struct capture_child *c);
/* Call it after the worker was forked. Does nothing if the order has no capture, or if a log cannot be read. */
void capture_child_plan(struct capture_child *c, const struct spawn_order *order,
                        const struct log_files *logs, int64_t now);
/* Starts the process if it is due. Returns the time at which it will be due, or INT64_MAX. */
int64_t capture_child_tick(struct capture_child *c, const struct spawn_order *order, int64_t started_wall_ms,
                           int64_t now);
/* Call it repeatedly after the worker has ended. Returns 0 once no more lines will come; until then, the time at which the
 * process is killed if it has not ended. failed: the worker has not succeeded. */
int64_t capture_child_finish(struct capture_child *c, const struct spawn_order *order,
                             int64_t started_wall_ms, bool failed, int64_t now);
void capture_child_read(struct capture_child *c, size_t limit, void (*fn)(void *, const char *line),
                        void *ctx);
void capture_child_stop(struct capture_child *c); /* kills the process */
void capture_child_reaped(struct capture_child *c, pid_t pid);

#endif
