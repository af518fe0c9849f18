#ifndef DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_UNSAVED_H
#define DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_UNSAVED_H

#include "daemon/coordinator/core/model.h"

/* What the failures that snapshot_faults.c keeps mean for other modules. */

/* Whether a rank waits for space for the last snapshot, so that all ranks are quiet. */
bool unsaved_waits(const struct core *core, const struct job *job);

#endif
