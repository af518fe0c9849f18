#ifndef DDP_DAEMON_COORDINATOR_CORE_NODES_GPUS_H
#define DDP_DAEMON_COORDINATOR_CORE_NODES_GPUS_H

#include "daemon/coordinator/core/model.h"

/* What the health of a node's GPUs means for placement and for the jobs that use them. */
void gpus_hello(struct core *core, struct node *node, const struct core_hello *hello);
void gpus_heard(struct core *core, struct node *node, const struct core_gpu *gpus, size_t count);
/* Ends the generations that have a worker on a GPU that is lost. If a worker's error is about to end a job, a GPU that
 * explains the error becomes the cause instead. */
void gpus_end_lost(struct core *core, struct node *node);

#endif
