#ifndef DDP_TRAINER_PARAMETERS_H
#define DDP_TRAINER_PARAMETERS_H

#include "trainer/trainer.h"

/* shard: optimizer with precision: bf16. After most steps ranks send each other matrices as bf16 (engine/packed.h). What reads
 * all parameters as floats first calls parameters_complete: an evaluation, the comparison of digests, a snapshot. If parameters
 * are compared after a step in any case (log_every), they are sent as floats at once. */

/* When a group has formed. */
void parameters_open(struct trainer *t);
void parameters_close(struct trainer *t);
/* Whether the step that is under way sends bf16. The same on every rank. */
bool parameters_are_packed(const struct trainer *t);
/* After the update, in place of the exchange by sync_after_step. Collective. */
MUST_CHECK enum err_code parameters_exchange(struct trainer *t, struct err *e);
/* Brings the parameters as floats, if they are not here. Collective, between two steps. */
MUST_CHECK enum err_code parameters_complete(struct trainer *t, struct err *e);

#endif
