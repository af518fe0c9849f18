#ifndef DDP_DAEMON_COORDINATOR_CORE_REPORTS_H
#define DDP_DAEMON_COORDINATOR_CORE_REPORTS_H

#include "daemon/coordinator/core/model.h"

/* Handles what workers report: steps and metrics. */
void reports_apply(struct core *core, struct node *node, const struct core_event *event);
/* The job is back at the step where the open fault hit it: says what the fault cost. */
void reports_close_fault(struct core *core, struct job *job);

#endif
