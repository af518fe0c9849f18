#ifndef DDP_BASE_PLAN_STEP_MODEL_H
#define DDP_BASE_PLAN_STEP_MODEL_H

#include <stdbool.h>

#include "base/job/job.h"
#include "base/plan/plan_sizes.h"

/* How long a step takes on machines that are not there: the model behind `ddpctl plan`. docs/explanation/plan.md has the equations, and
 * what they leave out. Pure functions. */

struct plan_machine {
    int64_t nodes, ranks; /* ranks: of all nodes; the same number on each */
    bool gpu;
    /* GPUs sum and gather through host memory, without NCCL. No pass overlaps with these exchanges. */
    bool host_sums;
    double step_s; /* of a rank alone, measured; 0: from `rate` */
    double rate; /* floating-point operations per second that a rank reaches in forward and backward passes */
    double memory_rate; /* bytes per second that a rank reads and writes in the optimizer's update */
    /* GPU: bytes per second that a rank sends to the node's others, and receives. CPU: bytes of an array that the ranks of
     * a node add up in a second. */
    double inside;
    double link;  /* bytes per second that a node sends to the others, and receives */
    double hop_s; /* seconds from one node to the next for a message without content */
};

struct plan_step {
    double compute_s;  /* passes and update */
    double update_s;   /* of that, the optimizer's update */
    double exchange_s; /* one exchange, if nothing else runs */
    double exposed_s;  /* of a step: time in which ranks stand still for exchanges */
    double step_s;     /* compute_s + exposed_s */
    double per_second; /* tokens of all ranks, or samples if the model has no tokens */
};

/* sync: a strategy, not SYNC_AUTO; shard: with all-reduce only. sizes: of the job with this strategy. */
void plan_step(const struct plan_sizes *sizes, const struct plan_machine *m, const struct sync_spec *sync,
               enum shard_type shard, struct plan_step *out);

#endif
