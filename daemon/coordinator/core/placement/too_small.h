#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_TOO_SMALL_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_TOO_SMALL_H

#include "base/buf.h"
#include "daemon/coordinator/core/placement/capacity.h"

/* Jobs that ask for more than the cluster has: they could not run even if it were empty. Thousands of them may wait, so
 * what was found about such a job is kept until the nodes or the job change. */

/* Begins a placement pass, after capacity_count of all nodes: finds out whether the nodes have changed. */
void too_small_review(struct core *core);
/* Whether the cluster is too small for the job; writes why to `text`, "waits for 2 nodes with 4 GPUs each: the cluster has
 * 1". */
bool too_small_explain(const struct core *core, const struct job *job, enum slot_kind kind, struct buf *text);
void too_small_keep(const struct core *core,
                    struct job *job); /* job->waits says why the cluster is too small */
/* Whether that is still so and job->waits is still right: neither the nodes nor the job have changed. */
bool too_small_still(const struct core *core, const struct job *job);

#endif
