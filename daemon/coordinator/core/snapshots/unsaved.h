#ifndef DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_UNSAVED_H
#define DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_UNSAVED_H

#include "daemon/coordinator/core/model.h"

/* What the failures that snapshot_faults.c keeps mean for other modules. */

/* Whether a rank waits for space for the last snapshot, so that all ranks are quiet. */
bool unsaved_waits(const struct core *core, const struct job *job);
/* A message if the last snapshot of a job that ends could not be written, else NULL. The caller frees it. */
char *unsaved_loss(const struct job *job);

#endif
