#ifndef DDP_TRAINER_ENGINE_PACKED_H
#define DDP_TRAINER_ENGINE_PACKED_H

#include "trainer/engine/engine.h"

/* shard: optimizer with precision: bf16. After an update, ranks need each other's matrices only as bf16, because
 * nothing but products reads them (model_tensor.narrow_only), and all other parameters as floats. A rank packs its
 * part in the memory of the gradients, which are not needed between two steps: matrices as bf16, the rest as floats,
 * in the order of the parameters. The caller gathers the parts, and each rank unpacks them: bf16 to model->narrowed,
 * which products read, floats to the parameters.
 *
 * From then on engine.partial is set: the float parameters of other ranks' matrices are those of an earlier step. */
struct packed_piece {
    size_t from, count; /* of the parameters */
    size_t at;          /* in the packed array, in floats */
    bool half;
};
struct packed {
    size_t *
        offsets; /* by rank: where its part begins in the packed array; world_size + 1 of them, the last is the size */
    struct packed_piece *pieces;
    size_t *first; /* by rank: its first piece; world_size + 1 of them */
    size_t piece_count, piece_cap;
    int rank, world_size;
    bool own_narrowed; /* the update has put this rank's part in model->narrowed: optim_narrow_to */
};

/* cuts: offsets of parameters, rising, multiples of 16. There the packed array can be divided into pieces that arrive
 * one after the other. Returns false if parameters are not packed: the optimizer is whole, or the model has no bf16
 * copy, or there is one rank. */
bool packed_open(struct packed *p, const struct engine *n, int rank, int world_size, const size_t *cuts,
                 size_t cut_count);
void packed_release(struct packed *p); /* one that is not open, too */
size_t packed_at(const struct packed *p,
                 size_t cut); /* where the parameters behind a cut begin in the packed array */
void packed_put(struct packed *p, struct engine *n);
/* After the gather. Takes the parameters [lo, hi), which are cuts, the first or the last; then the bf16 weights of these are
 * made. The caller sets engine.narrowed and engine.partial. */
void packed_take(const struct packed *p, struct engine *n, size_t lo, size_t hi);

#endif
