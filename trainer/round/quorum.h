#ifndef DDP_TRAINER_ROUND_QUORUM_H
#define DDP_TRAINER_ROUND_QUORUM_H

#include "trainer/trainer.h"

/* A rank's part in a job with sync.quorum, in which a round does not wait for late members. The coordinator decides which
 * members go on (daemon/coordinator/core/placement/quorum.c), and live_round.h describes their state. */

/* Called before each exchange. Reports to the coordinator that this rank has arrived. Returns at once, or after a late
 * member has come back, if one waits for that. Does nothing in a job without a quorum. */
void quorum_arrive(struct trainer *t);
/* Whether a round has closed without this rank. The rank is in no group then, and goes on with its own steps. */
bool quorum_is_late(const struct trainer *t);
/* Reports that this late rank has stopped making steps, and holds until it is a member of another generation. */
void quorum_hold_outside(struct trainer *t);

#endif
