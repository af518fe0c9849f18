#ifndef DDP_TRAINER_SIZES_EXCHANGE_H
#define DDP_TRAINER_SIZES_EXCHANGE_H

#include "base/plan/plan_sizes.h"
#include "trainer/engine/engine.h"

/* What the ranks of a job exchange in a step with all-reduce, cut as during a run: fills in `buckets`, and with shard: optimizer `pieces`.
 * The engine has its share of the optimizer; its device computes nothing (trainer/device/sizing.h). per_node: number of ranks on each
 * node. gpu: the ends of the ring are ranks instead of nodes. */
void sizes_exchange(const struct engine *n, int world, int per_node, bool gpu, struct plan_sizes *out);

#endif
