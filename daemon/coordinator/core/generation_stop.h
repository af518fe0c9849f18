#ifndef DDP_DAEMON_COORDINATOR_CORE_GENERATION_STOP_H
#define DDP_DAEMON_COORDINATOR_CORE_GENERATION_STOP_H

#include "daemon/coordinator/core/model.h"

/* Has the generation's living members stopped in this way, and sets the deadline after which they are stopped harder (jobs_tick).
 * The nodes learn of it by their next wish. The generation may be open. */
void generation_stop_spawns(struct core *core, struct generation *g, enum core_stop stop);

#endif
