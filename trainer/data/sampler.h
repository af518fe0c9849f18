#ifndef DDP_TRAINER_DATA_SAMPLER_H
#define DDP_TRAINER_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

/* Which samples a rank sees at a step.
 *
 * Every epoch is one permutation of the data set, keyed by (seed, epoch) and the same for every world size:
 * position 0, 1, 2, ... of the epoch is sample permute(position). The cursor (epoch, position) counts
 * positions consumed by all ranks together; a step takes the next `global` of them. So a run may stop at any
 * step and go on at another world size without losing or repeating a sample.
 *
 * Inside a step positions are dealt as PyTorch's DistributedSampler deals them: rank r takes every world-th
 * from r on. At the end of an epoch, where fewer than a whole step are left, the step is short, and some
 * ranks may get one sample less, or none (gradients are weighted by samples, so the result is that of the
 * whole short batch). With pad, ranks get equal numbers: positions past the end repeat samples from the
 * epoch's start, as PyTorch does.
 *
 * The permutation is a four-round Feistel network over the smallest even number of bits that holds the
 * positions, walking the cycle until it falls inside (Black and Rogaway, CT-RSA 2002): O(1) state. */

struct sampler {
    int64_t samples;
    int64_t global;     /* positions a step, over all ranks */
    int64_t accumulate; /* micro-batches a step */
    uint64_t seed;
    bool shuffle, pad;
    int rank, world_size;
};

struct cursor {
    int64_t epoch, position;
};

/* A rank's part of one micro-batch. */
struct sampler_batch {
    int64_t first, stride; /* positions */
    int64_t count;         /* this rank's samples */
};

int64_t sampler_steps(const struct sampler *s);                              /* in a whole epoch */
int64_t sampler_steps_left(const struct sampler *s, const struct cursor *c); /* in the cursor's epoch */
/* Samples of the step at the cursor: over all ranks, and this rank's own. Repeated ones (pad) count. */
int64_t sampler_global_samples(const struct sampler *s, const struct cursor *c);
int64_t sampler_local_samples(const struct sampler *s, const struct cursor *c);
int64_t sampler_max_rows(const struct sampler *s); /* of any micro-batch of any rank */
/* This rank's part of micro-batch number `micro` of the step at the cursor. */
void sampler_batch(const struct sampler *s, const struct cursor *c, int64_t micro, struct sampler_batch *out);
/* Sample numbers of a batch into index[0, count). */
void sampler_indices(const struct sampler *s, const struct cursor *c, const struct sampler_batch *b,
                     int64_t *index);
/* Past the step at the cursor; true when that ended the epoch (the cursor is then at the start of the next).
 */
bool sampler_advance(const struct sampler *s, struct cursor *c);

/* Where `position` of `epoch` lands, 0 <= position < samples. */
int64_t sampler_permute(const struct sampler *s, int64_t epoch, int64_t position);

#endif
