#ifndef DDP_DAEMON_COORDINATOR_CORE_REPORTS_H
#define DDP_DAEMON_COORDINATOR_CORE_REPORTS_H

#include "daemon/coordinator/core/model.h"

/* Handles what workers report: steps and metrics. */
void reports_apply(struct core *core, struct node *node, const struct core_event *event);

#endif
