#ifndef DDP_DAEMON_SUPERVISOR_GROUP_H
#define DDP_DAEMON_SUPERVISOR_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "base/err.h"

/* All workers of one job on one node, and the connection to the agent, which may come and go. One thread, one
 * poll(2).
 *
 * Happy path: the agent's orders start workers, workers end, their exit records go to disk and to the agent,
 * and when the agent has forgotten all of them the group is done. Failure modes:
 *
 *   the agent dies           workers continue; the next agent connects to the socket and is told everything again
 *   no agent comes           the lease runs out: SIGTERM, later SIGKILL; the records stay on disk
 *   an attached agent dies   all workers are killed (ddpctl run: nothing outlives it)
 *   this supervisor hangs    in a call on a file: a timer ends it soon after the lease (watchdog.h), so it dies
 *   this supervisor dies     the kernel kills the workers; the next supervisor ends what they left behind */

struct group_options {
    const char *dir; /* <state>/run/<job> */
    const char *node;
    int64_t job;
    rlim_t files;    /* soft limit of open files for the workers; 0: the supervisor's own */
    int control_fd;  /* an open connection to an agent, or -1 */
    bool attached;   /* all workers are killed when that agent is gone */
    int terminal_fd; /* the way to the user's terminal (base/worker/terminal_offer.h), or -1 */
};

struct group;
MUST_CHECK enum err_code group_open(struct group **out, const struct group_options *options, struct err *e);
/* Returns when all spawns have ended and the agent has forgotten them, or, without an agent, when their
 * records are on disk. */
void group_run(struct group *g);
void group_free(struct group *g);

#endif
