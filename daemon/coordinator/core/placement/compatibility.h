#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_COMPATIBILITY_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_COMPATIBILITY_H

#include "base/buf.h"
#include "daemon/coordinator/core/placement/capacity.h"

/* NCCL refuses peers of any other version, down to the patch level. So the native workers of a generation on
 * GPUs run only on nodes whose trainers use the same version. Commands bring their own NCCL, and their users
 * match it themselves. A node that has not yet reported its version goes with any. A node without NCCL goes with none. */

bool compatibility_matters(const struct job *job, enum slot_kind kind);
size_t compatibility_unfit_nodes(
    const struct core *core); /* nodes that have GPUs and a trainer that cannot use them */
size_t compatibility_single_nodes(
    const struct core *core); /* nodes that have GPUs and no NCCL, so that one rank alone can train on them */
/* Keeps the choices of one version: the one with the most nodes, among equals that of the first in the list.
 */
size_t compatibility_keep_largest(struct placement_choice *list, size_t count);
/* Keeps the choices that are compatible with the node. */
size_t compatibility_keep_with(const struct node *node, struct placement_choice *list, size_t count);
/* Whether other nodes that could take the job have a version that does not match the node's. */
bool compatibility_leaves_out(const struct core *core, const struct job *job, enum slot_kind kind,
                              const struct node *node);
/* False: enough nodes could take the job, but not of one version; `why` names the versions. */
bool compatibility_feasible(const struct core *core, const struct job *job, enum slot_kind kind,
                            struct buf *why);
/* Two nodes of the list compute with different libraries on their GPUs. NCCL accepts that, but the bits may
 * differ. Returns NULL if none do, else a sentence that the caller frees. */
char *compatibility_difference(const struct placement_choice *list, size_t count);

#endif
