#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_BROKEN_GROUP_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_BROKEN_GROUP_H

#include "daemon/coordinator/core/model.h"

/* Ends the job's generation if all of its members have said in Watch that their group no longer works (broken_generation):
 * then no rank is lost, and they form another group with the state that they have in memory. */
void broken_group_review(struct core *core, struct job *job);
/* The worker has said so, and is to wait for others that have not noticed it yet. */
bool broken_group_waits(const struct spawn *s);

#endif
