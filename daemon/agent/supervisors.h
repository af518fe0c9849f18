#ifndef DDP_DAEMON_AGENT_SUPERVISORS_H
#define DDP_DAEMON_AGENT_SUPERVISORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include "base/err.h"
#include "daemon/agent/reconcile.h"
#include "daemon/agent/supervisor.h"

/* The supervisors of this node, one for each job, and what is known of their spawns. Happy path: an order
 * makes a supervisor necessary, it is started, reports its spawns, and is gone when all of them are
 * forgotten. After a restart of the agent, running supervisors are found by their sockets. A supervisor that
 * died left records; a new one is started, which ends what the dead one left. Facts come from the record
 * files until the supervisor has spoken, and from the supervisor after that. Loop thread. */

struct uv_loop_s;
struct supervisors;

struct supervisors_options {
    const char *state;   /* <state>/run/<job> */
    const char *log_dir; /* a supervisor's own log: <log_dir>/<job>/supervisor.<node>.log */
    const char
        *runtime; /* <runtime>/<job> has the run directories of workers under other accounts; NULL: they
                            are in <state>/run/<job> */
    const char *node;
    rlim_t files;     /* soft limit of open files for the workers; 0: unknown */
    bool attached;    /* supervisors and their workers end with this process, and share its stdin */
    int terminal;     /* a socket to ddpctl's terminal, which they inherit; -1: none */
    int64_t sweep_ms; /* the longest time of a call of supervisors_sweep; 0: 500 */
};

/* Reads the records in <state>/run. */
MUST_CHECK enum err_code supervisors_open(struct supervisors **out, struct uv_loop_s *loop,
                                          const struct supervisors_options *options,
                                          const struct supervisor_events *events, struct err *e);
/* Closes the connections. Detached supervisors go on; attached ones kill their workers and end. */
void supervisors_let_go(struct supervisors *all);
void supervisors_close(struct supervisors *all); /* run the loop once more, so that the handles close */

/* The directory of a job's run directories; the caller frees it. supervisors_sweep removes it. */
char *supervisors_run_base(struct supervisors *all, int64_t job);
/* Connects to, or starts, the supervisors that are needed and absent. Returns the BOOTTIME ms of the next
 * try; INT64_MAX: none is needed. */
int64_t supervisors_tend(struct supervisors *all, int64_t now);

/* Passes the order on, releases it and empties it. UNAVAILABLE: the supervisor is not connected, or its queue
 * is full: try again later. RESOURCE_EXHAUSTED: the supervisor could not be started, or ended at
 * once, which is a fault of the node. */
MUST_CHECK enum err_code supervisors_start(struct supervisors *all, int64_t job, struct spawn_order *order,
                                           struct err *e);
/* The agent could not even give the order for this spawn, so it writes the exit record itself. node_trouble
 * and no_account are those of spawn_fact. */
void supervisors_refuse(struct supervisors *all, int64_t job, const struct spawn_order *order,
                        const char *why, bool node_trouble, bool no_account);
void supervisors_stop(struct supervisors *all, const struct action *stop);
void supervisors_answer(struct supervisors *all, const struct action *answer);
void supervisors_forget(struct supervisors *all, int64_t job, int64_t spawn);
void supervisors_renew(struct supervisors *all, int64_t job, int64_t sent, int64_t lease_ms);

/* All facts. They are borrowed until the next call of this module or of the loop; the caller frees the array.
 */
const struct spawn_fact **supervisors_known(struct supervisors *all, size_t *count);
bool supervisors_know(struct supervisors *all, int64_t job, int64_t spawn); /* there is a fact about it */
bool supervisors_settled(void *supervisors, int64_t job);                   /* reconcile_input.settled */
size_t supervisors_children(const struct supervisors *all); /* started by this process, not reaped yet */
void supervisors_reap(struct supervisors *all);             /* on SIGCHLD */
/* Removes the directories of jobs of which nothing is known and that are not `wanted` any more. Returns the BOOTTIME ms
 * at which to call again, because some may be left; INT64_MAX: none is. */
int64_t supervisors_sweep(struct supervisors *all, bool (*wanted)(void *ctx, int64_t job), void *ctx);

#endif
