#ifndef DDP_DAEMON_SUPERVISOR_SPARE_H
#define DDP_DAEMON_SUPERVISOR_SPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/supervisor/protocol/spawn_order.h"

/* Spares: Python processes that have imported the modules of a job's `preload` and wait for the orders of a rank, so that
 * a restarted rank need not import them.
 *
 * Happy path: a while after a rank has begun, a spare is started for its slot with its environment, account, directory
 * and limits, in a session of its own. It runs spare.py, which imports the modules and says that it is ready. When the
 * next rank of the slot is started, the spare gets its environment, arguments, directory and descriptors through a
 * socket, moves into its cgroup, and runs its program. From then on it is an ordinary worker. Another spare follows.
 *
 * Failures:
 *   a module cannot be imported     one line in the log, no further spares; ranks start the ordinary way
 *   a spare ends                    it is started again, after a pause that grows
 *   it is not ready, or was made    the rank starts the ordinary way, and the spare of its slot is replaced
 *   for another environment
 *   it ends while it becomes a rank a new process becomes the rank (spawn_start_again)
 *   no rank comes                   all spares end SPARE_LINGER_MS after the last worker of a failed generation, and at
 *                                   once after a success
 *   the supervisor ends             so do its spares (PDEATHSIG) */
#define SPARE_DELAY_MS 2000   /* after the start of the rank, which imports the same modules */
#define SPARE_LINGER_MS 60000 /* a job restarts within this time, unless it waits for nodes */

#define SPARE_CGROUP                                                                                         \
    "-spare" /* the end of a spare's cgroup; its begin is that of the rank after which it was made */

struct spawn;

struct spare {
    struct spawn_order order; /* of the rank whose environment and limits it has */
    char *cgroup;             /* of the spare and the processes that its modules start; NULL: none */
    pid_t pid;
    int socket; /* -1: it has ended, or been killed */
    bool ready;
    int64_t begun;
};

struct spares {
    struct spare **items;
    size_t count, cap;
    bool given_up; /* the modules cannot be imported */
    int64_t retry_at, pause;
    int64_t until; /* without workers, spares are kept until then */
};

/* Starts spares that are due, and replaces spares that no longer fit. Returns when to call again; INT64_MAX: after the
 * next event. */
int64_t spares_tick(struct spares *all, struct spawn *const *spawns, size_t count, rlim_t files, int64_t now);
void spares_hear(struct spares *all, size_t index); /* its socket is readable */
/* Returns whether the process was a spare. */
bool spares_reaped(struct spares *all, pid_t pid, int status, int64_t now);
bool spares_linger(const struct spares *all, int64_t now); /* the next generation may need the spares */
void spares_release(struct spares *all);

/* Lets a ready spare of the order's slot become the rank. descriptors: count of them and the numbers that they get, but
 * the last one, which tells of a failed start as that of a forked child does. NOT_FOUND: there is none. After any other
 * error the spare is gone, too. */
MUST_CHECK enum err_code spares_take(struct spares *all, const struct spawn_order *order, const char *cgroup,
                                     char *const *env, bool terminal, const int *descriptors,
                                     const int *numbers, size_t count, pid_t *pid, struct err *e);

#endif
