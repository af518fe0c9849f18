#ifndef DDP_TRAINER_ROUND_TIMED_ROUND_H
#define DDP_TRAINER_ROUND_TIMED_ROUND_H

#include "trainer/engine/step.h"
#include "trainer/trainer.h"

/* Rounds of a given time (`sync.every: 30s`). Each rank makes as many steps as it can until its own clock says that the
 * time is over, so a slow machine holds up nobody. Then
 *
 *     ranks tell each other how many samples they have taken in the round (timed_round_count)
 *     they exchange parameters, weighted by these numbers
 *     all of them count the round's samples, and deal the samples of the next round (trainer/engine/share.h)
 *
 * Nothing else crosses the network within a round. So steps of the run are counted, and evaluations, snapshots, tuning, a
 * stop and the end of the run come, when a round is over. A stop or a hand-over ends the round of each rank that hears of it.
 * The step number is that of global batches: the samples of all ranks divided by those of a global batch. */

/* Before a step: whether it belongs to such a round. Deals samples if a round begins. */
bool timed_round_begin(struct trainer *t);
/* After the optimizer's step: counts it, and says whether the round is over for this rank. */
bool timed_round_step(struct trainer *t, const struct step *s);
/* Collective. Fills in s->global, and weights the exchange that follows. */
MUST_CHECK enum err_code timed_round_count(struct trainer *t, struct step *s, struct err *e);
/* After the exchange and the end of the step. */
void timed_round_end(struct trainer *t, bool *epoch_ended);
void timed_round_release(struct trainer *t); /* the generation's */

/* How many steps would fit into the time, if `steps` took `ns`. At most 16 times as many as were made, since few steps are a
 * poor measure. */
int64_t timed_round_fit(int64_t steps, int64_t ns, int64_t every_ms);

#endif
