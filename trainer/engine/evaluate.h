#ifndef DDP_TRAINER_ENGINE_EVALUATE_H
#define DDP_TRAINER_ENGINE_EVALUATE_H

#include "trainer/engine/engine.h"

/* Sums of loss, correct answers and samples over a shard's part of the test split. The sum over all shards
 * does not depend on which rank computed which shard. */

struct evaluate_counts {
    double loss, correct, samples;
};
/* Evaluates these parameters (device memory) on this rank's shards' samples; out: n->shards elements. */
MUST_CHECK enum err_code evaluate_shards(struct engine *n, const float *params, struct evaluate_counts *out,
                                         struct err *e);
/* Sums the counts of all shards and keeps the result as that of this step's parameters. OUT_OF_RANGE: the
 * loss is not a number, which the last step of a run can cause. */
MUST_CHECK enum err_code evaluate_take(struct engine *n, const struct evaluate_counts *all, int count,
                                       struct err *e);

#endif
