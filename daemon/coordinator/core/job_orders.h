#ifndef DDP_DAEMON_COORDINATOR_CORE_JOB_ORDERS_H
#define DDP_DAEMON_COORDINATOR_CORE_JOB_ORDERS_H

#include "daemon/coordinator/core/event.h"

/* Users' commands that change a job's place in the queue or delete its records.
 *
 * Priority and hold are keys of the job file. A change makes a new version of it, as `ddpctl tune` does, so it survives
 * the coordinator and comes with no records of its own. Each of these answers the call. */
void job_orders_priority(struct core *core, const struct core_event *event);
void job_orders_hold(struct core *core, const struct core_event *event); /* and release */
/* Removes the records of an ended job, and tells its nodes to remove its log files. A node that is not connected keeps
 * them until they expire; the reply names it. */
void job_orders_delete(struct core *core, const struct core_event *event);

#endif
