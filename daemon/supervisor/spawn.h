#ifndef DDP_DAEMON_SUPERVISOR_SPAWN_H
#define DDP_DAEMON_SUPERVISOR_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "daemon/supervisor/capture_child.h"
#include "daemon/supervisor/hold.h"
#include "daemon/supervisor/kernel_kills.h"
#include "daemon/supervisor/log_times.h"
#include "daemon/supervisor/protocol/control.h"
#include "daemon/supervisor/protocol/process_kill.h"
#include "daemon/supervisor/pseudo_terminal.h"
#include "daemon/supervisor/report_reader.h"
#include "daemon/supervisor/spare.h"
#include "daemon/supervisor/store_child.h"
#include "daemon/supervisor/worker_link.h"

/* The life of one worker, from its order to its exit record:
 *
 *   begun: port and GPUs held, cgroup made, record on disk, ddp-store started,
 *   log files, fork                                                              → starting
 *   exec_fd reaches its end of file: the command runs                            → running
 *   told to stop, or the lease ends: SIGTERM to its group, later SIGKILL to all  → stopping
 *   reaped, and its other processes have ended too; record on disk               → exited
 *
 * A failure before the command runs leads to exited, with not_started and a message. A record that is on disk
 * without a supervisor either says exited, and the agent has yet to forget it, or its supervisor died: then
 * the spawn's processes are found by cgroup or mark and killed, and it counts as lost. Times are
 * CLOCK_BOOTTIME ms. */
struct spawn {
    struct spawn_order order;
    struct spawn_fact fact;
    enum stop_mode stop;
    int64_t stop_at, kill_at; /* when the stop was ordered; when SIGKILL is due */
    bool termed, killed;      /* SIGTERM (or stop_signal) was sent; SIGKILL was sent */
    bool unasked;             /* it was already ending when the stop was ordered */
    pid_t pid;                /* 0: not started, or reaped */
    pid_t session;            /* the worker's first pid, for telling its leftovers */
    int status;               /* of waitpid */
    int stop_signal;          /* 0: SIGTERM */
    int report_fd, exec_fd, port_fd;
    int gpu_fds[HOLD_FDS];
    struct pseudo_terminal terminal; /* of a rank in the foreground */
    struct kernel_kills kernel_kills;
    int64_t running_at;            /* when its command began; 0: not yet */
    int64_t next_try;              /* of an action that has failed: writing the record, killing a process */
    int64_t pause;                 /* before the next try to kill; doubled each time */
    struct process_list leftovers; /* its processes that were sent SIGKILL */
    struct report_reader reader;
    struct worker_link worker;
    struct log_times times;
    struct capture_child capture;
    struct store_child store; /* started for its generation; the group takes it at once */
    bool at_terminal;         /* stderr goes to the terminal, too: stdout.log has both */
    bool warm;                /* a spare that has not become the rank yet */
    bool found;               /* known only from the record of an earlier supervisor */
    bool saved;               /* the exit record is on disk */
    enum err_code save_code;  /* why the last try to write it failed */
    bool dirty;               /* the agent has not been told the current fact */
};

struct spawn_site { /* values that all spawns of a group share */
    const char *dir, *node;
    int64_t job;
    bool brief;   /* nothing of the group outlives its agent, so records need no sync to the disk */
    rlim_t files; /* soft limit of the workers' open files; 0: the supervisor's own */
    struct terminal_link terminal;
    struct spares *spares;
    struct log_watch *log_watch;
};

struct spawn_peers {
    const pid_t *mains; /* the first processes of the other spawns that are alive */
    size_t count;
    const pid_t *stores; /* the supervisor's ddp-store processes and spares, which belong to no spawn */
    size_t store_count;
};

/* Takes the texts of *order. Never fails: if the start fails, the fact says why. */
struct spawn *spawn_begin(struct spawn_order *order, const struct spawn_site *site);
struct spawn *spawn_found(const struct spawn_fact *fact); /* from a record on disk */
void spawn_free(struct spawn *s);

/* Sets the first signal of a later spawn_stop. Signals that a program cannot handle are ignored, and so is
 * every signal for a native worker. */
void spawn_stop_by(struct spawn *s, int number);
/* a weaker mode than an earlier one is ignored */
void spawn_stop(struct spawn *s, enum stop_mode mode, int64_t grace, int64_t now);
/* The supervisor itself was told to stop. A worker that nobody has told to stop before counts as interrupted. */
void spawn_interrupt(struct spawn *s, int64_t now);
void spawn_exec_ready(struct spawn *s, const struct spawn_site *site); /* exec_fd is readable */
/* Reads the report pipe, at most `limit` bytes, and calls fn with each good line. */
void spawn_read_reports(struct spawn *s, size_t limit, void (*fn)(void *, const char *line), void *ctx);
void spawn_hear_worker(struct spawn *s); /* the worker's control socket is readable or writable */
void spawn_answer_worker(struct spawn *s, const struct spawn_answer *answer);
void spawn_reaped(struct spawn *s, int status);
/* Does what is due now. Returns when it must be called again; INT64_MAX: after the next event. */
int64_t spawn_tick(struct spawn *s, const struct spawn_site *site, const struct spawn_peers *peers,
                   int64_t now);
bool spawn_ended(const struct spawn *s); /* exited, and all its processes are gone */

#endif
