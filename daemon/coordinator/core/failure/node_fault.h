#ifndef DDP_DAEMON_COORDINATOR_CORE_FAILURE_NODE_FAULT_H
#define DDP_DAEMON_COORDINATOR_CORE_FAILURE_NODE_FAULT_H

#include "daemon/coordinator/core/model.h"

/* Whether a worker's end is the fault of its node, and not of the job: the worker was new, and ended with an error that a
 * restart would repeat, but the job runs on other nodes. So this node lacks the job's data or program, or has different files.
 * The job continues without the node (placement/left_out.h). Call this before the exit is recorded. */
bool node_fault_ended(const struct core *core, const struct spawn *s, const struct spawn_fact *fact);

#endif
