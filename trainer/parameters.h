#ifndef DDP_TRAINER_PARAMETERS_H
#define DDP_TRAINER_PARAMETERS_H

#include "trainer/trainer.h"

/* shard: optimizer. After an update ranks send each other the parameters that they have updated.
 *
 * Between nodes and over NCCL they arrive in pieces while the next forward pass runs, in the order in which the pass
 * reads them. The pass waits for a piece before it reads it (engine.await). Until all have arrived, this rank makes
 * no collective call of its own. If parameters are compared after the step (log_every), they are sent at once.
 *
 * With precision: bf16 matrices are sent as bf16 after most steps (engine/packed.h), in the memory of the gradients.
 * So a backward pass begins only when all have arrived. Code that reads all parameters as floats (an evaluation, the
 * comparison of digests, a snapshot) first calls parameters_complete. If parameters are compared after the step, they
 * are sent as floats at once. */

/* When a group has formed. */
void parameters_open(struct trainer *t);
void parameters_close(struct trainer *t);
/* After the update and sync_after_step. Does nothing if each rank has updated all. Collective. */
MUST_CHECK enum err_code parameters_exchange(struct trainer *t, struct err *e);
/* Waits until all that were sent are here. On a device they arrive before the operations that it is given next.
 * Returns the error of a piece if the forward pass could not get it. */
MUST_CHECK enum err_code parameters_await(struct trainer *t, struct err *e);
/* Brings the parameters as floats, if they are not here. Collective, between two steps. */
MUST_CHECK enum err_code parameters_complete(struct trainer *t, struct err *e);

#endif
