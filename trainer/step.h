#ifndef DDP_TRAINER_STEP_H
#define DDP_TRAINER_STEP_H

#include "trainer/engine/step.h"
#include "trainer/trainer.h"

/* One step of the loop: the engine's work, and the exchange with the other ranks in between. Leaves all
 * ranks' votes in s->tail, and the engine at the next step. */
MUST_CHECK enum err_code trainer_step(struct trainer *t, struct step *s, bool *epoch_ended, struct err *e);

#endif
