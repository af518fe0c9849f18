#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_COMPATIBILITY_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_COMPATIBILITY_H

#include "base/buf.h"
#include "daemon/coordinator/core/placement/capacity.h"

/* NCCL refuses peers of another version than its own, down to the patch. So the native workers of a
 * generation on GPUs have nodes whose trainers carry the same one; commands bring their own NCCL, and are
 * their own to match. A node that has not said yet goes with any. */

bool alike_matters(const struct job *job, enum room_mode mode);
bool alike_can_train(const struct node *node); /* its trainer can use GPUs */
size_t alike_unfit(const struct core *core);   /* nodes with GPUs and such a trainer as cannot */
/* Keeps those of one version: of as many nodes as possible, among equals of the first in the list. */
size_t alike_keep(struct place_choice *list, size_t count);
/* Keeps those that go with the node. */
size_t alike_with(const struct node *node, struct place_choice *list, size_t count);
/* False: nodes enough could take the job, but not of one version; says which they are. */
bool alike_feasible(const struct core *core, const struct job *job, enum room_mode mode, struct buf *why);

/* NULL, or how two of the nodes differ in what computes on their GPUs: NCCL does not mind, the bits may. */
char *alike_difference(const struct place_choice *list, size_t count);

#endif
