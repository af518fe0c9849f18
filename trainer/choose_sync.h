#ifndef DDP_TRAINER_CHOOSE_SYNC_H
#define DDP_TRAINER_CHOOSE_SYNC_H

#include "trainer/trainer.h"

/* `sync: auto`: the strategy of a generation. The trainer opens the group with the strategy of sync_choice_base and
 * restores the state with that; then it measures, chooses, and goes on by the choice (base/job/sync_choice.h). */

/* Collective, after trainer_restore. Does nothing if the job names a strategy. */
MUST_CHECK enum err_code trainer_choose_sync(struct trainer *t, struct err *e);

/* Goes on by another strategy between two steps: all-reduce, or diloco with the arrays of sync_choice_base. Collective.
 * To all-reduce: the round ends first, and all ranks take the optimizer's moments of rank 0, because with unequal moments
 * they would make unequal updates. To diloco: the first round begins at the parameters, which are equal on all ranks, with
 * an outer momentum of 0. From diloco to diloco: the round goes on. */
MUST_CHECK enum err_code trainer_adopt_sync(struct trainer *t, const struct sync_spec *spec, struct err *e);

#endif
