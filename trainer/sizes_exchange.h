#ifndef DDP_TRAINER_SIZES_EXCHANGE_H
#define DDP_TRAINER_SIZES_EXCHANGE_H

#include "base/plan/plan_sizes.h"
#include "trainer/engine/engine.h"

/* What the ranks of a job exchange in a step of all-reduce, cut as when it runs: fills in `buckets`, and with shard: optimizer `pieces`.
 * The engine has its share; its device computes nothing (trainer/device/sizing.h). per_node: ranks of a node; gpu: each rank is an end. */
void sizes_exchange(const struct engine *n, int world, int per_node, bool gpu, struct plan_sizes *out);

#endif
