#ifndef DDP_DAEMON_COORDINATOR_CORE_FAILURE_FAULT_COST_H
#define DDP_DAEMON_COORDINATOR_CORE_FAILURE_FAULT_COST_H

#include "daemon/coordinator/core/model.h"

/* What a fault costs a job: the time, and the steps that are done again, from the end of a generation until
 * the job is back at the step where the fault hit it. */

/* A generation ended or drains. An open fault stays open. charged: it counts as a restart; text: why. */
void fault_open(struct core *core, struct job *job, bool charged, const char *text);
/* The job is back at that step: an event says what the fault cost. */
void fault_close(struct core *core, struct job *job);

#endif
