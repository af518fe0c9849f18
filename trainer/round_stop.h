#ifndef DDP_TRAINER_ROUND_STOP_H
#define DDP_TRAINER_ROUND_STOP_H

#include "trainer/engine/step.h"
#include "trainer/trainer.h"

/* A stop within a round of a number of steps.
 *
 * Within such a round ranks send each other nothing, and stand at unlike steps. They meet before everything that they do
 * together: the exchange at the end of the round, an evaluation within it, and the end of the run. A rank that is asked to
 * stop, and would need more than a second for the rest of its round, comes to the meeting after its present step. If a rank
 * has come for that, nobody does what the others have come for. All stop where they are, and write a snapshot in which
 * each rank's part has its own place (keep.c). If none has, all go on. So all ranks stop before the same exchange, and a
 * round has one small collective more.
 *
 * Ranks that meet do not evaluate or exchange on their own, so a run that resumes makes the same collectives in the same
 * order: what was due after the last step of a rank is still due (resume_parts.c).
 *
 * With overlap, an exchange is under way while ranks make steps, so there are no meetings, and a stop ends with the round.
 * The same with a quorum: a rank that hangs after it has arrived, and before the exchange ends, is not late for the
 * coordinator, and a meeting would make this time longer. Rounds of one step need no meetings. */

bool round_stop_meets(const struct trainer *t);
/* Whether this rank comes to the meeting after its present step, which took step_ns. */
bool round_stop_wanted(const struct trainer *t, const struct step *s, int64_t step_ns);
/* Collective. wanted: this rank has come because it is to stop. If a rank has, sets t->stopped_within, and the votes for a
 * stop in tail, TAIL_USED floats. */
MUST_CHECK enum err_code round_stop_meet(struct trainer *t, bool wanted, float *tail, struct err *e);
/* For tests: with DDP_TEST_HOLD_STEP="40:PATH" the process holds in its 40th step of the run while the file PATH exists. */
void round_stop_test_hold(const struct trainer *t);

#endif
