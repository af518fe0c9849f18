#ifndef DDP_TRAINER_COMPARE_H
#define DDP_TRAINER_COMPARE_H

#include "trainer/trainer.h"

/* Collective: compares digests of the parameters between ranks. This finds a bit that flipped in one rank's
 * memory before the bit enters all sums and snapshots. Does nothing within a round, when ranks differ. Leaves
 * the digest in t->digest. DATA_LOSS: this rank's parameters differ from those of the others. ABORTED:
 * another rank's parameters differ. */
MUST_CHECK enum err_code trainer_compare(struct trainer *t, struct err *e);

/* Collective, when a group has formed, and before a state is loaded or trained: checks that all ranks hold the
 * same run at the same place, which they may not after a failed step or exchange. Sets the samples of the round
 * that t->round left open to those of the ranks that are in the group. FAILED_PRECONDITION, on all ranks: names a
 * rank and what differs. */
MUST_CHECK enum err_code trainer_compare_places(struct trainer *t, struct err *e);

#endif
