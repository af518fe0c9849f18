#ifndef DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_PENDING_PARTS_H
#define DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_PENDING_PARTS_H

#include "daemon/coordinator/core/model.h"

/* A snapshot that each rank of a job writes a part of. It is committed when every rank has said that its part is on
 * disk. Until then it is known in memory only: each rank calls until it hears that the snapshot is committed, and a rank
 * that could not write its part names the step in each new Watch. So a coordinator that restarts in between hears of all
 * parts, and of a failure, again. */

/* Counts the caller's part. *complete: all parts are there. FAILED_PRECONDITION: the ranks' shared files differ. ABORTED:
 * another rank could not write its part. */
MUST_CHECK enum err_code pending_parts_take(struct job *job, const struct spawn *s,
                                            const struct core_event *event, bool *complete, struct err *e);
/* A rank could not write its part: the snapshot of this step can no longer be committed. */
void pending_parts_failed(struct job *job, const struct spawn *s, int64_t step);
void pending_parts_forget(struct job *job);

#endif
