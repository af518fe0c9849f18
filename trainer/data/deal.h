#ifndef DDP_TRAINER_DATA_DEAL_H
#define DDP_TRAINER_DATA_DEAL_H

#include <stddef.h>

#include "trainer/data/sampler.h"

/* Deals samples to ranks that take unlike numbers of them in a round, which nobody knows before the round is over.
 *
 * The samples that no rank has taken yet stand in a row: pieces that were given back, then the rest of the epoch and the
 * epochs after it, in the order of the sampler. At the beginning of a round each rank gets the next `most` samples of the
 * row, rank after rank, and takes from the front of them. When the round is over, what each rank has taken leaves the row.
 * The rest stays, at the front, and is dealt first in the next round. All ranks make the same row from the same numbers.
 *
 * So no sample of an epoch is taken twice, and none is left out, whatever the speeds. A piece is dealt again within a few
 * rounds, so there are only a few pieces for each rank. */

struct deal_piece { /* samples in a row, of the epoch's order */
    int64_t epoch, position, count;
};

struct deal {
    struct deal_piece *pieces;
    size_t count, room;
    struct cursor next; /* behind the last piece: no sample from here on was dealt */
};

/* Begins at the cursor, with pieces that were given back before; `d` is zeros or was used before. */
void deal_start(struct deal *d, const struct cursor *next, const struct deal_piece *pieces, size_t count);
void deal_release(struct deal *d);

/* Makes the row at least `wanted` samples long. samples: of an epoch. */
void deal_extend(struct deal *d, int64_t samples, int64_t wanted);
/* Takes samples [from, from + count) out of the row. */
void deal_remove(struct deal *d, int64_t from, int64_t count);
/* Writes the sample numbers of [from, from + count) of the row to index. */
void deal_indices(const struct deal *d, const struct sampler *s, int64_t from, int64_t count, int64_t *index);

/* How many samples each rank may take in a round at most: twice as many as fit, so that a rank that has become faster need
 * not stop. If the run has only `left` samples left, their number is divided in proportion to fits. fits: how many a rank
 * can take in the time of a round, by rank, each at least 1, the sum at most 2^30. */
void deal_limits(const int64_t *fits, int ranks, int64_t left, int64_t *most);

#endif
