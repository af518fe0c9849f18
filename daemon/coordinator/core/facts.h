#ifndef DDP_DAEMON_COORDINATOR_CORE_FACTS_H
#define DDP_DAEMON_COORDINATOR_CORE_FACTS_H

#include "daemon/coordinator/core/model.h"

/* Handles what a node says of its workers. */
void facts_apply(struct core *core, struct node *node, const struct core_event *event);

#endif
