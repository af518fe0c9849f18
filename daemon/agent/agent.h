#ifndef DDP_DAEMON_AGENT_AGENT_H
#define DDP_DAEMON_AGENT_AGENT_H

#include "base/err.h"
#include "daemon/agent/settings.h"

/* The agent's main loop. Everything happens on one libuv loop: messages from the coordinator and from
 * supervisors mark what changed, and once a turn the loop settles it: it applies the wish, connects or starts
 * supervisors, and tells the coordinator the new facts. */

/* Returns when the agent was told to end: by SIGTERM or SIGINT, or because the lifeline was closed. Workers
 * go on, unless there is a lifeline. */
MUST_CHECK enum err_code agent_run(const struct settings *settings, struct err *e);

#endif
