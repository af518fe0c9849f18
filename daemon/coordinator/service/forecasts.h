#ifndef DDP_DAEMON_COORDINATOR_SERVICE_FORECASTS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_FORECASTS_H

#include <stdbool.h>

#include "daemon/coordinator/core/status.h"
#include "daemon/coordinator/service/pool.h"
#include "proto/ddp.pb-c.h"

/* When the jobs of the queue start, for those who ask. A forecast is made when somebody asks and the last one is stale. It is
 * made in slices of some milliseconds, so that a long queue holds up nothing else. Loop thread. */

struct service;
struct forecasts;

struct forecasts *forecasts_open(struct service *s);
void forecasts_close(struct forecasts *f); /* after the loop was closed */
/* Fills in message->start_estimate, if the job is in the queue and its start was estimated. whole: also with which flags it would
 * start at once, which costs more. */
void forecasts_fill(struct service *s, struct pool *pool, const struct core_job_status *status, bool whole,
                    Ddp__V1__JobStatus *message);

#endif
