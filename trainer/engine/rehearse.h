#ifndef DDP_TRAINER_ENGINE_REHEARSE_H
#define DDP_TRAINER_ENGINE_REHEARSE_H

#include "trainer/engine/engine.h"

/* Computes the gradients of one micro-batch of full size while the device chooses algorithms, then discards them.
 * Nothing else may run on the device. Parameters, moments and the position in the run do not change. The data set must
 * not be empty, and parameters must be set. */
MUST_CHECK enum err_code engine_rehearse(struct engine *n, struct err *e);

#endif
