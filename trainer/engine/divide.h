#ifndef DDP_TRAINER_ENGINE_DIVIDE_H
#define DDP_TRAINER_ENGINE_DIVIDE_H

#include "base/job/job.h"
#include "trainer/model/model.h"

/* How shard: optimizer divides the parameters among ranks. They are cut into blocks, which depend on model and optimizer alone: the
 * norm of the gradient is the sum over blocks. A rank's part is a row of blocks. With adamw and sgd all parts but the last have
 * the same size. With muon no part cuts a tensor of matrices, and the largest state of a rank is as small as that allows. */
struct divide {
    size_t *blocks; /* where blocks begin, block_count + 1 of them; the last is the number of parameters */
    size_t block_count;
    size_t *first; /* by rank: its first block; first[world_size] is block_count */
};
void divide_open(struct divide *d, const struct model *m, const struct train_spec *spec, int world_size);
void divide_release(struct divide *d);
/* The most blocks of a rank. */
size_t divide_most(const struct divide *d, int world_size);

#endif
