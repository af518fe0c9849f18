#ifndef DDP_DAEMON_SUPERVISOR_SPAWN_H
#define DDP_DAEMON_SUPERVISOR_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "daemon/supervisor/hold.h"
#include "daemon/supervisor/protocol/control.h"
#include "daemon/supervisor/report_reader.h"

/* The life of one worker, from its order to its exit record:
 *
 *   begin: record on disk, port and GPUs held, log files, cgroup, fork     → starting
 *   exec_fd at its end without a word                                      → running
 *   a stop, or the lease's end: SIGTERM to its group, later SIGKILL to all → stopping
 *   reaped, and whatever it left behind ended too; record on disk          → exited
 *
 * A record found on disk without a supervisor is either an end that the agent has yet to forget, or a spawn
 * whose supervisor died: its processes are found by cgroup or mark, ended, and it counts as lost. What fails
 * before the command runs ends as exited with not_started and a message. Times are CLOCK_BOOTTIME ms. */
struct spawn {
    struct spawn_order order;
    struct spawn_fact fact;
    enum stop_mode stop;
    int64_t stop_at, kill_at; /* when it was asked for, when patience ends */
    bool termed, killed;      /* SIGTERM (or stop_signal) was sent; SIGKILL was sent */
    bool unasked;             /* it was ending already when it was told to stop */
    pid_t pid;                /* 0: not started, or reaped */
    pid_t session;            /* the worker's first pid, for telling its leftovers */
    int status;               /* of waitpid */
    int stop_signal;          /* 0: SIGTERM */
    int report_fd, exec_fd, port_fd;
    int gpu_fds[HOLD_FDS];
    long long oom_before;
    int64_t next_try; /* of what did not work yet: a record on a full disk, a leftover in the kernel */
    int64_t pause;    /* until then: longer each time, for what SIGKILL does not end */
    struct report_reader reader;
    bool found; /* a record of an earlier supervisor */
    bool saved; /* the exit record is on disk */
    bool dirty; /* the agent has not heard of the fact as it is */
};

struct spawn_site { /* where a group's spawns live */
    const char *dir, *node;
    int64_t job;
    rlim_t files; /* soft limit of the workers' open files; 0: as ours */
};

struct spawn_peers { /* the first processes of the other spawns that are alive */
    const pid_t *mains;
    size_t count;
};

/* Takes what is in *order. Never fails: what went wrong is in the fact. */
struct spawn *spawn_begin(struct spawn_order *order, const struct spawn_site *site);
struct spawn *spawn_found(const struct spawn_fact *fact); /* from a record on disk */
void spawn_free(struct spawn *s);

/* The signal that spawn_stop begins with, where it has not begun: one that can be handled, else SIGTERM. */
void spawn_stop_by(struct spawn *s, int number);
void spawn_stop(struct spawn *s, enum stop_mode mode, int64_t grace, int64_t now); /* never weakens */
void spawn_exec_ready(struct spawn *s, const struct spawn_site *site);             /* exec_fd is readable */
/* Reads what the pipe holds, at most `limit` bytes; fn gets good lines. */
void spawn_read_reports(struct spawn *s, size_t limit, void (*fn)(void *, const struct spawn_report *),
                        void *ctx);
void spawn_reaped(struct spawn *s, int status);
/* Does what is due. The time of the next thing to do; INT64_MAX: none. */
int64_t spawn_tick(struct spawn *s, const struct spawn_site *site, const struct spawn_peers *peers,
                   int64_t now);
bool spawn_ended(const struct spawn *s); /* exited, all members gone */

#endif
