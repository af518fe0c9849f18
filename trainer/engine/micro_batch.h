#ifndef DDP_TRAINER_ENGINE_MICRO_BATCH_H
#define DDP_TRAINER_ENGINE_MICRO_BATCH_H

#include "trainer/engine/engine.h"

/* The memory of a micro-batch, and the gathering of samples into it. */

/* rows: most rows of a micro-batch. */
MUST_CHECK enum err_code micro_batch_open(struct engine *n, int64_t rows, struct err *e);
void micro_batch_close(struct engine *n);
/* Loads samples n->index[0, rows) of d. */
MUST_CHECK enum err_code micro_batch_load(struct engine *n, const struct dataset *d, int64_t rows,
                                          struct model_batch *out, struct err *e);
/* Loads the sampler's share of micro-batch number `micro` of the step at the engine's cursor. */
MUST_CHECK enum err_code micro_batch_next(struct engine *n, int64_t micro, struct model_batch *out,
                                          struct err *e);
/* Gathers the samples of a later micro_batch_next beforehand, while the device is at work. */
void micro_batch_stage(struct engine *n, const struct cursor *cursor, int64_t micro);

#endif
