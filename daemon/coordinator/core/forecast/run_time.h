#ifndef DDP_DAEMON_COORDINATOR_CORE_FORECAST_RUN_TIME_H
#define DDP_DAEMON_COORDINATOR_CORE_FORECAST_RUN_TIME_H

#include "daemon/coordinator/core/forecast/run_history.h"

/* The milliseconds until a running job ends, or that a waiting job will run once it has started. It is estimated from the job's
 * own progress, else from earlier jobs, else from its time limit, and is never longer than the time limit. -1: unknown. */
int64_t run_time_left(const struct job *job, const struct run_history *history, struct core_now now);

#endif
