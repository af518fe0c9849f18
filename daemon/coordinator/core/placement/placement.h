#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_PLACEMENT_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_PLACEMENT_H

#include "daemon/coordinator/core/model.h"

/* Places the jobs that wait, and offers free nodes to elastic jobs; placement.c describes the rules. */
void placement_run(struct core *core);

#endif
