#ifndef DDP_DAEMON_AGENT_COORDINATOR_LINK_H
#define DDP_DAEMON_AGENT_COORDINATOR_LINK_H

#include "base/err.h"
#include "daemon/agent/agent_state.h"

/* What the agent says on its session (session.h) to the coordinator, and what it does with each message that
 * comes back. Messages only record what changed and set agent->changed; the loop acts on it (agent.c). Loop
 * thread. */

/* Opens the session, unless it is open already or the hello cannot be complete yet: --rejoin still ends the
 * former cluster's workers, or the trainer has not named its GPU libraries and may still do so. A failure is
 * kept in agent->failure and ends the loop. */
void coordinator_link_dial(struct agent *a);

/* Tries again to write a wish that could not be written. Returns the BOOTTIME ms of the next try; INT64_MAX: none is due. */
int64_t coordinator_link_save_wish(struct agent *a, int64_t now);

/* For modules that send messages of their own; `agent` is the struct agent. Errors as session_send has them.
 */
MUST_CHECK enum err_code coordinator_link_send(void *agent, const Ddp__V1__AgentUp *up, struct err *e);
MUST_CHECK enum err_code coordinator_link_send_log(void *agent, const Ddp__V1__LogChunk *chunk,
                                                   struct err *e);

#endif
