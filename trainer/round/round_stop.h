#ifndef DDP_TRAINER_ROUND_ROUND_STOP_H
#define DDP_TRAINER_ROUND_ROUND_STOP_H

#include "trainer/engine/step.h"
#include "trainer/trainer.h"

/* A stop within a round of averaging, for rounds of a number of steps.
 *
 * Within such a round, ranks send each other nothing, and are at different steps. Before everything that they do together (the
 * exchange at the end of the round, an evaluation within it, the end of the run), all ranks make one small collective call,
 * the meeting. A rank that is asked to stop, and needs more than a second for the rest of its round, makes this call after
 * its present step. If at least one rank has made it to stop, all ranks stop where they are, and do not do what the others
 * have made it for. They write a snapshot in which each rank's part has its own position (keep.c). Otherwise all continue. So
 * all ranks stop before the same exchange, at the cost of one small collective call a round.
 *
 * No rank has made the evaluation or the exchange before which they stopped. A run that resumes makes it (resume_parts.c), and
 * so makes the same collective calls in the same order as a run that was not stopped.
 *
 * In three cases there are no meetings, and a stop waits for the end of the round: with overlap, because an exchange is under
 * way while ranks make steps; with a quorum, because a rank that hangs between its arrival and the end of the exchange is not
 * late for the coordinator, and a meeting would make this time longer; and if a round has one step. */

bool round_stop_meets(const struct trainer *t);
/* Whether this rank calls round_stop_meet after its present step, which took step_ns, in order to stop. */
bool round_stop_wanted(const struct trainer *t, const struct step *s, int64_t step_ns);
/* The meeting: a collective call. wanted: this rank makes it in order to stop. If any rank does, sets t->stopped_within, and
 * the votes for a stop in tail (TAIL_USED floats). */
MUST_CHECK enum err_code round_stop_meet(struct trainer *t, bool wanted, float *tail, struct err *e);
/* The meeting before an exchange. Fast ranks wait here for the slowest one, so the time counts as part of the exchange (sync_round). */
MUST_CHECK enum err_code round_stop_meet_to_exchange(struct trainer *t, bool wanted, float *tail,
                                                     struct err *e);

#endif
