#ifndef DDP_DAEMON_AGENT_WISH_APPLY_H
#define DDP_DAEMON_AGENT_WISH_APPLY_H

#include <stdint.h>

#include "daemon/agent/agent_state.h"

/* Carries out what the wish asks of this node: compares it with what runs (reconcile.h), prepares each new
 * worker's directories, job file and environment, and passes the orders on to the supervisors. Loop thread.
 */

void wish_apply(struct agent *a, int64_t now);
/* Passes the last acknowledged heartbeat on to the supervisors of all jobs in the wish: their leases count
 * from it. */
void wish_renew_leases(struct agent *a);

#endif
