#ifndef DDP_TRAINER_ENGINE_REHEARSE_H
#define DDP_TRAINER_ENGINE_REHEARSE_H

#include "trainer/engine/engine.h"

/* Computes the gradients of one micro-batch, as large as they come, while the device chooses algorithms, and throws them
 * away. Nothing else may run on the device. Parameters, moments and the place in the run do not change. The data set must
 * not be empty, and parameters must be set. */
MUST_CHECK enum err_code engine_rehearse(struct engine *n, struct err *e);

#endif
