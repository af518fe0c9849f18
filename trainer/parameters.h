#ifndef DDP_TRAINER_PARAMETERS_H
#define DDP_TRAINER_PARAMETERS_H

#include "trainer/trainer.h"

/* shard: optimizer. After an update ranks send each other the parameters that they have updated.
 *
 * Between nodes and over NCCL they come in pieces while the next forward pass runs, in the order in which it reads them: it waits for a
 * piece before it reads it (engine.await). Until all have come, this rank makes no collective call of its own. If parameters
 * are compared after a step in any case (log_every), they are sent at once.
 *
 * With precision: bf16 matrices are sent as bf16 after most steps (engine/packed.h), in the memory of the gradients; so a backward pass begins
 * when all have come. What reads all parameters as floats first calls parameters_complete: an evaluation, the comparison of
 * digests, a snapshot. If parameters are compared after a step in any case, they are sent as floats at once. */

/* When a group has formed. */
void parameters_open(struct trainer *t);
void parameters_close(struct trainer *t);
/* After the update and sync_after_step. Does nothing if each rank has updated all. Collective. */
MUST_CHECK enum err_code parameters_exchange(struct trainer *t, struct err *e);
/* Waits until all that were sent are here. On a device they come before what it is told next. Returns the error of a piece for which
 * the forward pass has waited in vain. */
MUST_CHECK enum err_code parameters_await(struct trainer *t, struct err *e);
/* Brings the parameters as floats, if they are not here. Collective, between two steps. */
MUST_CHECK enum err_code parameters_complete(struct trainer *t, struct err *e);

#endif
