#ifndef DDP_TRAINER_LIVE_H
#define DDP_TRAINER_LIVE_H

#include "trainer/engine/state.h"
#include "trainer/trainer.h"

/* A generation that goes on from memory: some ranks have come from the generation before and hold its state. */

/* Collective, when a group has formed: ranks whose state is not that of the source's step get the source's, and all use the strategy
 * that the source has chosen (sync: auto). Afterwards all ranks are at the same step; trainer_compare_places compares what they hold.
 * t->owed: some rank has not done all that was due after that step. */
MUST_CHECK enum err_code live_share(struct trainer *t, struct err *e);

/* Collective: sends an array of rank root, in device memory, to all. take: this rank's array becomes the same. */
MUST_CHECK enum err_code live_share_array(struct trainer *t, const struct state_array *array, int root,
                                          bool take, struct err *e);

#endif
