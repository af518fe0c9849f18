#ifndef DDP_DAEMON_AGENT_AGENT_H
#define DDP_DAEMON_AGENT_AGENT_H

#include "base/err.h"
#include "daemon/agent/settings.h"

/* The agent itself. Everything happens on one libuv loop: what arrives marks what changed, and once a turn
 * the loop settles it: reconcile, tend the supervisors, tell the coordinator. */

/* Returns when it was told to end (SIGTERM, SIGINT, the lifeline's end). Workers go on, unless there is a
 * lifeline. */
MUST_CHECK enum err_code agent_run(const struct settings *settings, struct err *e);

#endif
