#ifndef DDP_TRAINER_STEP_H
#define DDP_TRAINER_STEP_H

#include "trainer/engine/step.h"
#include "trainer/trainer.h"

/* One step of the loop: the engine's work, and the exchange with the other ranks in between. Leaves all
 * ranks' votes in s->tail, and the engine at the next step. */
MUST_CHECK enum err_code trainer_step(struct trainer *t, struct step *s, bool *epoch_ended, struct err *e);
/* Makes the exchange at the end of a round again, which the group before has failed in (sync_round_due). Leaves all ranks' votes
 * in s->tail, if the exchange brings them now. */
MUST_CHECK enum err_code trainer_exchange_again(struct trainer *t, struct step *s, struct err *e);

#endif
