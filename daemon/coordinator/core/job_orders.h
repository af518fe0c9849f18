#ifndef DDP_DAEMON_COORDINATOR_CORE_JOB_ORDERS_H
#define DDP_DAEMON_COORDINATOR_CORE_JOB_ORDERS_H

#include "daemon/coordinator/core/event.h"

/* Users' commands that change a job's place in the queue or delete its records. Each function answers the call.
 *
 * Priority and hold are keys of the job file, so a change is stored as a new version of the file, like one by
 * `ddpctl tune`. It needs no other record, and it is still there after a restart of the coordinator. */
void job_orders_priority(struct core *core, const struct core_event *event);
void job_orders_hold(struct core *core, const struct core_event *event); /* and release */
/* Removes the records of an ended job, and tells its nodes to remove its log files. A node that is not connected keeps
 * them until they expire; the reply names it. */
void job_orders_delete(struct core *core, const struct core_event *event);

#endif
