#ifndef DDP_TRAINER_ENGINE_EVALUATE_H
#define DDP_TRAINER_ENGINE_EVALUATE_H

#include "trainer/engine/engine.h"

/* Loss and accuracy over the test split, shard by shard: exact counts, so that the sum over all shards of all
 * ranks does not depend on who computed which. */

struct evaluate_counts {
    double loss, correct, samples;
};
/* out: n->shards of them, of this rank's parameters on its shards' samples. */
MUST_CHECK enum err_code evaluate_shards(struct engine *n, struct evaluate_counts *out, struct err *e);
/* Takes the counts of all shards in, as those of the parameters of this step. OUT_OF_RANGE: the loss is no
 * number; the last step of a run may have ruined it. */
MUST_CHECK enum err_code evaluate_take(struct engine *n, const struct evaluate_counts *all, int count,
                                       struct err *e);

#endif
