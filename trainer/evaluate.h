#ifndef DDP_TRAINER_EVALUATE_H
#define DDP_TRAINER_EVALUATE_H

#include "trainer/trainer.h"

/* Collective: computes loss and accuracy over the test split, as exact counts over all ranks. Each rank
 * evaluates its own parameters on its part of the split, also within a round, when ranks differ.
 * OUT_OF_RANGE, on all ranks: the loss is not a number. */
MUST_CHECK enum err_code trainer_evaluate(struct trainer *t, struct err *e);

#endif
