#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CONVERT_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CONVERT_H

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/pool.h"
#include "proto/ddp.pb-c.h"

/* Fills messages from the core's views. A message borrows the view's texts and allocates its own parts from
 * the pool, so it must be sent before either is released. Any thread. */

/* whole: with ranks and the job file. */
void convert_job(struct pool *pool, const struct core_job_status *status, bool whole,
                 Ddp__V1__JobStatus *out);
void convert_environment(struct pool *pool, const struct job_record *job, Ddp__V1__JobStatus *out); /* env */
void convert_node(struct pool *pool, const struct core_node_status *status, struct core_now now,
                  Ddp__V1__NodeStatus *out);
void convert_wish(struct pool *pool, const struct core_wish *wish, const char *cluster_id,
                  Ddp__V1__Wish *out);

/* Splits a text into lines, for a repeated field. Returns their number; the array and the lines are the
 * pool's. */
size_t convert_lines(struct pool *pool, const char *joined, char ***out);

#endif
