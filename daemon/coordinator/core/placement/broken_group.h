#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_BROKEN_GROUP_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_BROKEN_GROUP_H

#include "daemon/coordinator/core/model.h"

/* A worker says in Watch that the group of its generation no longer works; generation 0: it does not say so. Ends the
 * generation if all of its members have said so: then no rank is lost, and they form another group with the state that
 * they have in memory. */
void broken_group_said(struct core *core, struct spawn *s, int64_t generation);

#endif
