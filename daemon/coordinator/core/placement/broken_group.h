#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_BROKEN_GROUP_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_BROKEN_GROUP_H

#include "daemon/coordinator/core/model.h"

/* Ends the job's generation if all of its members have reported in Watch that their group is broken (broken_generation). No
 * rank is lost then, and the members form another group with the state in their memory. */
void broken_group_review(struct core *core, struct job *job);
/* Whether the worker has reported it, and must wait for members that have not noticed it yet. */
bool broken_group_waits(const struct spawn *s);

#endif
