#ifndef DDP_DAEMON_AGENT_STATE_MOVE_H
#define DDP_DAEMON_AGENT_STATE_MOVE_H

#include "base/err.h"

/* Moves the state that an agent built before release 0.1.0 left. Root's agent kept it in /var/lib/ddp, which
 * now belongs to the coordinator's account. */

#define STATE_DIR_OLD "/var/lib/ddp"
#define STATE_DIR_ROOT "/var/lib/ddp-agent" /* the default for root */

/* Moves an agent's state from `from` to `to`, unless `to` already holds an agent's state. Running supervisors
 * go on with their old paths, which are links to the new ones. *out (the caller frees it) is the directory to
 * use: `to`, or `from` if the two are on different file systems. FAILED_PRECONDITION: another agent still
 * uses `from`, or another account may have made the files there. */
MUST_CHECK enum err_code state_move(const char *from, const char *to, char **out, struct err *e);

#endif
