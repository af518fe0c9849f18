#ifndef DDP_DAEMON_COORDINATOR_CORE_LOAD_H
#define DDP_DAEMON_COORDINATOR_CORE_LOAD_H

#include "daemon/coordinator/core/model.h"

/* Fills an empty core with what was durable. */
MUST_CHECK enum err_code load_records(struct core *core, const struct records *records, struct err *e);
/* Adds one job, from its complete records. DATA_LOSS: the records are inconsistent, and a part of the job is
 * left in the core. */
MUST_CHECK enum err_code load_job_whole(struct core *core, const struct records *records, struct err *e);

#endif
