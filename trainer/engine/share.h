#ifndef DDP_TRAINER_ENGINE_SHARE_H
#define DDP_TRAINER_ENGINE_SHARE_H

#include "trainer/engine/engine.h"

/* The samples that this rank is dealt for a round of a given time, in which ranks make unlike numbers of steps
 * (trainer/data/deal.h). n->step, n->samples and n->cursor then count what all ranks have agreed to have taken, and move at
 * the round's end only. A step of such a rank takes engine_share.batch samples. */

struct share_count { /* a rank's round, as it tells all ranks */
    int64_t taken;   /* samples */
    int64_t fit;     /* samples that it can take in the time of a round */
    int64_t updates; /* steps of its optimizer so far */
};

/* Samples in a step of the rank. */
int64_t share_batch(const struct engine *n, int rank);
/* Deals the next round. fits: of all ranks, as deal_limits takes them. */
void share_begin(struct engine *n, const int64_t *fits);
/* Whether this rank has taken all that it was dealt. */
bool share_spent(const struct engine *n);
/* Ends the round. all: the counts of all ranks. Sets *epoch_ended. */
void share_end(struct engine *n, const struct share_count *all, bool *epoch_ended);
/* What a rank has taken of the row of a round that was cut off. */
struct share_range {
    int64_t first, taken;
};
struct share_range share_range(const struct engine *n); /* this rank's; zeros if no round is open */
/* For a group that forms after a round was cut off: the samples that the present ranks have taken in it leave the row
 * and count, since their steps count; those of lost ranks are dealt again. all: by rank. */
void share_cut_off(struct engine *n, struct share_range *all, int ranks);
/* For a rank that is new in such rounds, or was away from them: copies the others' row, of which it has taken no samples.
 * fewest: the fewest steps of any rank's optimizer. */
void share_take_row(struct engine *n, const struct deal *row, int64_t fewest);
/* Goes on without such rounds. What was given back is left out, so that no sample of the epoch is taken twice. All ranks
 * then count the steps of the optimizer that had made the fewest. */
void share_leave(struct engine *n);
/* Samples that all ranks have taken in the open round, as far as this rank can tell; 0 between two rounds. */
double share_ahead(const struct engine *n);

#endif
