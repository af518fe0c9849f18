#ifndef DDP_DAEMON_COORDINATOR_CORE_FAILURE_NODE_FAULT_H
#define DDP_DAEMON_COORDINATOR_CORE_FAILURE_NODE_FAULT_H

#include "daemon/coordinator/core/model.h"

/* Whether a worker's end is the fault of its node, and not of the job: it was new and ended with an error that a restart would
 * repeat, while the job runs on other nodes. Its data or program is missing on that node, or is another one. The job then goes
 * on without the node (placement/left_out.h). Called before the exit is recorded. */
bool node_fault_ended(const struct core *core, const struct spawn *s, const struct spawn_fact *fact);

#endif
