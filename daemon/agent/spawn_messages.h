#ifndef DDP_DAEMON_AGENT_SPAWN_MESSAGES_H
#define DDP_DAEMON_AGENT_SPAWN_MESSAGES_H

#include <stdint.h>

#include "daemon/agent/agent_state.h"

/* Messages to the coordinator about this node's workers: facts (what runs or has ended) and reports (what
 * workers measured). Loop thread. */

/* Sends waiting reports, then all facts. Does nothing before the coordinator's welcome. agent->facts_due
 * stays set when they could not be sent. */
void spawn_messages_send_facts(struct agent *a);
/* Sends a batch of reports when one is due. Returns the BOOTTIME ms of the next one; INT64_MAX: none. */
int64_t spawn_messages_send_reports(struct agent *a, int64_t now);

#endif
