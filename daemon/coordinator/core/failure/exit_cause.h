#ifndef DDP_DAEMON_COORDINATOR_CORE_FAILURE_EXIT_CAUSE_H
#define DDP_DAEMON_COORDINATOR_CORE_FAILURE_EXIT_CAUSE_H

#include "daemon/coordinator/core/model.h"

/* A worker has ended: records its exit, decides whether and by whose failure its generation ends, and ends
 * it. fact NULL: the worker's node does not know the worker. */
void exit_cause_apply(struct core *core, struct spawn *s, const struct spawn_fact *fact);

#endif
