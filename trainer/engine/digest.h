#ifndef DDP_TRAINER_ENGINE_DIGEST_H
#define DDP_TRAINER_ENGINE_DIGEST_H

#include "trainer/engine/engine.h"

/* Digests of the parameters and of the optimizer's moments, the same on every device that holds the same bits. */

/* Allocates the device memory that it needs. */
MUST_CHECK enum err_code digest_open(struct engine *n, struct err *e);
void digest_close(struct engine *n);
/* Returns the digest of n->params. It is not valid if the device's next wait fails. */
uint64_t digest_params(struct engine *n);
uint64_t digest_moments(struct engine *n); /* returns that of n->optim->state */
uint64_t digest_array(struct engine *n, const float *array, size_t count);

#endif
