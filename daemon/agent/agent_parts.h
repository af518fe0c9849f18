#ifndef DDP_DAEMON_AGENT_AGENT_PARTS_H
#define DDP_DAEMON_AGENT_AGENT_PARTS_H

#include "base/err.h"
#include "daemon/agent/agent_state.h"

/* Opens and releases the modules that an agent is made of. The loop must be initialized before the first call
 * and must run once more after the last one, so that handles can close. */

/* Takes the state directory's lock, reads what is kept there, and opens all modules but the session. Release
 * *a whatever the result. */
MUST_CHECK enum err_code agent_parts_open(struct agent *a, struct err *e);
void agent_parts_release(struct agent *a);

#endif
