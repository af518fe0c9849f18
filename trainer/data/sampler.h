#ifndef DDP_TRAINER_DATA_SAMPLER_H
#define DDP_TRAINER_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

/* Chooses the samples that a rank sees at a step.
 *
 * Every epoch is one permutation of the data set. It depends on (seed, epoch) only, not on the world size:
 * position 0, 1, 2, ... of the epoch is sample permute(position). The cursor (epoch, position) counts the
 * positions that all ranks together have consumed; a step takes the next `global` positions. Therefore a run
 * may stop at any step and continue at another world size without losing or repeating a sample.
 *
 * Inside a step, positions are dealt as PyTorch's DistributedSampler deals them: rank r takes positions r, r
 * + world, r + 2 world, ... If fewer positions than a whole step are left at the end of an epoch, the step is
 * short, and some ranks get one sample less, or none. Gradients are weighted by samples, so the result is
 * that of the whole short batch. With pad, all ranks get equal numbers: positions past the end repeat samples
 * from the start of the epoch, as in PyTorch.
 *
 * With `bounds` (balance: speed) ranks get unlike numbers: of a whole step, rank r takes the positions from bounds[r] up to
 * bounds[r + 1]; of a short one, the same part. A rank then makes as many micro-batches as it needs, none of which is
 * larger than without bounds. So the number of its samples does not change how much memory it needs.
 *
 * The permutation is a four-round Feistel network over the smallest even number of bits that holds the
 * positions. A result outside the positions is permuted again until it falls inside (cycle walking: Black and
 * Rogaway, CT-RSA 2002). Its state has constant size. */

struct sampler {
    int64_t samples;
    int64_t global;     /* positions in one step, over all ranks */
    int64_t accumulate; /* micro-batches in one step */
    uint64_t seed;
    bool shuffle, pad;
    int rank, world_size;
    const int64_t *bounds; /* world_size + 1 numbers, from 0 to global, or NULL; borrowed */
};

struct cursor {
    int64_t epoch, position;
};

/* A rank's part of one micro-batch. */
struct sampler_batch {
    int64_t first, stride; /* first position, and distance between two positions */
    int64_t count;         /* number of this rank's samples */
};

int64_t sampler_steps(const struct sampler *s); /* steps in a whole epoch */
/* steps left in the cursor's epoch */
int64_t sampler_steps_left(const struct sampler *s, const struct cursor *c);
/* The number of samples of the step at the cursor: of all ranks, and of this rank. Samples that pad repeats
 * count. */
int64_t sampler_global_samples(const struct sampler *s, const struct cursor *c);
int64_t sampler_local_samples(const struct sampler *s, const struct cursor *c);
int64_t sampler_max_rows(const struct sampler *s); /* largest number of rows of any micro-batch of any rank */
int64_t sampler_micro_batches(const struct sampler *s); /* of this rank, in each step; some may be empty */
/* Sets out to this rank's part of micro-batch number `micro` of the step at the cursor. */
void sampler_batch(const struct sampler *s, const struct cursor *c, int64_t micro, struct sampler_batch *out);
/* Writes the sample numbers of batch b to index[0, b->count). */
void sampler_indices(const struct sampler *s, const struct cursor *c, const struct sampler_batch *b,
                     int64_t *index);
/* Moves the cursor past its step. Returns true if that ended the epoch; the cursor is then at the start of
 * the next epoch. */
bool sampler_advance(const struct sampler *s, struct cursor *c);

/* Returns the sample at `position` of `epoch`; 0 <= position < samples. */
int64_t sampler_permute(const struct sampler *s, int64_t epoch, int64_t position);

#endif
