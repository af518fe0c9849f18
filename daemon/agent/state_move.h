#ifndef DDP_DAEMON_AGENT_STATE_MOVE_H
#define DDP_DAEMON_AGENT_STATE_MOVE_H

#include "base/err.h"

/* Up to version 0.1 root's agent kept its state in /var/lib/ddp, which now belongs to the coordinator's
 * account. */

#define STATE_DIR_OLD "/var/lib/ddp"
#define STATE_DIR_ROOT "/var/lib/ddp-agent"

/* Moves an agent's state from `from` to `to`, unless `to` has an agent's state already. Running supervisors
 * continue to use their old paths, which are links to the new ones. *out (the caller frees) is the directory
 * to use: `from` if the two are on different file systems. FAILED_PRECONDITION: another agent still uses
 * `from`, or another account may have made the files there. */
MUST_CHECK enum err_code state_move(const char *from, const char *to, char **out, struct err *e);

#endif
