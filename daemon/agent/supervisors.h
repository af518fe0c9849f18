#ifndef DDP_DAEMON_AGENT_SUPERVISORS_H
#define DDP_DAEMON_AGENT_SUPERVISORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include "base/err.h"
#include "daemon/agent/reconcile.h"
#include "daemon/supervisor/protocol/control.h"

/* The supervisors of this node, one a job: started when there is something to do, found again by their
 * sockets, started anew when one has died and left records (the new one ends what the dead one left). What is
 * known of a job's spawns is here: from the record files until its supervisor has spoken, from the supervisor
 * after that. Loop thread. */

struct uv_loop_s;
struct supervisors;

struct supervisors_events {
    void (*on_change)(void *user); /* a fact, or who answers, has changed */
    void (*on_report)(void *user, int64_t job, const struct spawn_report *report);
    void *user;
};
struct supervisors_options {
    const char *state;   /* <state>/run/<job> */
    const char *log_dir; /* a supervisor's own log: <log_dir>/<job>/supervisor.<node>.log */
    const char *runtime; /* <runtime>/<job> holds run directories of another user's workers; NULL:
                            <state>/run/<job> */
    const char *node;
    rlim_t files;  /* soft limit of open files that workers get; 0: unknown */
    bool attached; /* supervisors end with this process */
};

/* Looks through <state>/run for records. */
MUST_CHECK enum err_code supervisors_open(struct supervisors **out, struct uv_loop_s *loop,
                                          const struct supervisors_options *options,
                                          const struct supervisors_events *events, struct err *e);
void supervisors_let_go(
    struct supervisors *all); /* closes the connections: detached supervisors go on, attached ones end */
void supervisors_close(
    struct supervisors *all); /* connections and handles; run the loop once more before it is closed */

/* Where a job's run directories are made; the caller frees. Removed by supervisors_sweep. */
char *supervisors_run_base(struct supervisors *all, int64_t job);
/* Connects to, or starts, supervisors that are needed and absent. The BOOTTIME ms of the next try; INT64_MAX:
 * none. */
int64_t supervisors_tend(struct supervisors *all, int64_t now);

/* The order is the supervisor's afterwards (and empty). UNAVAILABLE: not connected yet, or its queue is full: again
 * later. */
MUST_CHECK enum err_code supervisors_start(struct supervisors *all, int64_t job, struct spawn_order *order,
                                           struct err *e);
/* The agent could not start a supervisor for this spawn, so it makes the exit record itself. node_trouble:
 * another node may succeed; no_account: as in spawn_fact. */
void supervisors_refuse(struct supervisors *all, int64_t job, const struct spawn_order *order,
                        const char *why, bool node_trouble, bool no_account);
void supervisors_stop(struct supervisors *all, const struct action *stop);
void supervisors_forget(struct supervisors *all, int64_t job, int64_t spawn);
void supervisors_renew(struct supervisors *all, int64_t job, int64_t sent, int64_t lease_ms);

/* All that is known, by job; borrowed until the next call into supervisors or the loop. The caller frees the array.
 */
const struct spawn_fact **supervisors_known(struct supervisors *all, size_t *count);
bool supervisors_know(struct supervisors *all, int64_t job, int64_t spawn); /* a fact is known of it */
bool supervisors_settled(void *supervisors,
                         int64_t job); /* as reconcile wants it: connected, and all was said */
size_t supervisors_children(const struct supervisors *all); /* started by this process, and not yet reaped */
void supervisors_reap(struct supervisors *all);             /* on SIGCHLD */
/* Removes what a job left in <state>/run once nothing is known and `wanted` says no. */
void supervisors_sweep(struct supervisors *all, bool (*wanted)(void *ctx, int64_t job), void *ctx);

#endif
