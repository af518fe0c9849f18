#ifndef DDP_TRAINER_COMPARE_H
#define DDP_TRAINER_COMPARE_H

#include "trainer/trainer.h"

/* Collective: compares digests of the parameters between ranks. This finds a bit that flipped in one rank's
 * memory before the bit enters all sums and snapshots. Does nothing within a round, when ranks differ. Leaves
 * the digest in t->digest. DATA_LOSS: this rank's parameters differ from those of the others. ABORTED:
 * another rank's parameters differ. */
MUST_CHECK enum err_code trainer_compare(struct trainer *t, struct err *e);

#endif
