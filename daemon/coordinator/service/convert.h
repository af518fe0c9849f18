#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CONVERT_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CONVERT_H

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/pool.h"
#include "proto/ddp.pb-c.h"

/* The core's views as messages. A message borrows the view's texts and owns its own pieces through the pool:
 * send it before either goes. */

void convert_job(struct pool *pool, const struct core_job_status *status, bool whole,
                 Ddp__V1__JobStatus *out);
void convert_node(struct pool *pool, const struct core_node_status *status, struct core_now now,
                  Ddp__V1__NodeStatus *out);
void convert_wish(struct pool *pool, const struct core_wish *wish, const char *cluster_id,
                  Ddp__V1__Wish *out);

/* A text's lines as a repeated field: their number; the array and the lines are the pool's. */
size_t convert_lines(struct pool *pool, const char *joined, char ***out);

#endif
