#ifndef DDP_TRAINER_GENERATIONS_H
#define DDP_TRAINER_GENERATIONS_H

#include "trainer/trainer.h"

/* Takes part in one generation after another, until the run has ended or this process is not needed any more. t: opened by
 * trainer_open. The caller calls trainer_leave afterwards. ABORTED, CANCELLED: a peer was lost or the generation is over,
 * and this process does not go on. Other errors: this rank has failed. */
MUST_CHECK enum err_code generations_run(struct trainer *t, struct err *e);

#endif
