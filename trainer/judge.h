#ifndef DDP_TRAINER_JUDGE_H
#define DDP_TRAINER_JUDGE_H

#include "trainer/trainer.h"

/* What ranks find out about their parameters together. Both are collective. */

/* Loss and accuracy over the test split, exact counts over all ranks. Ranks that differ (in an averaging
 * round) each judge their own parameters on their part. OUT_OF_RANGE, on all: the loss is no number. */
MUST_CHECK enum err_code trainer_evaluate(struct trainer *t, struct err *e);

/* Digests of the parameters. Ranks that ought to hold the same compare theirs now and then: a bit that
 * flipped in one's memory would otherwise go into every sum and every snapshot unseen. t->digest is that of
 * this step, unless ranks are in the middle of a round. DATA_LOSS: this rank's parameters are not those of
 * the others; ABORTED: another's. */
MUST_CHECK enum err_code trainer_compare(struct trainer *t, struct err *e);

#endif
