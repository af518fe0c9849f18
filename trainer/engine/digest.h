#ifndef DDP_TRAINER_ENGINE_DIGEST_H
#define DDP_TRAINER_ENGINE_DIGEST_H

#include "trainer/engine/engine.h"

/* A digest of the parameters, the same on every device that holds the same bits. */

MUST_CHECK enum err_code digest_open(struct engine *n, struct err *e); /* what the device needs for it */
void digest_close(struct engine *n);
/* Meaningless where the device's next wait fails. */
uint64_t digest_params(struct engine *n);

#endif
