#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_YIELDING_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_YIELDING_H

#include "daemon/coordinator/core/placement/capacity.h"

/* Elastic train jobs leave nodes, without a stop, to a waiting job of a higher priority. */

/* The job waits for these nodes. If all that is missing there can be left to it, the jobs that hold it are handed over. */
void yielding_begin(struct core *core, const struct job *job, const struct placement_choice *nodes,
                    size_t count, enum slot_kind kind);

#endif
