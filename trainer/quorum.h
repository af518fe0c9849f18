#ifndef DDP_TRAINER_QUORUM_H
#define DDP_TRAINER_QUORUM_H

#include "trainer/trainer.h"

/* Rounds that do not wait for their last members (sync.quorum). The coordinator decides which members go on
 * (daemon/coordinator/core/placement/quorum.c), live_round.h says with what. */

/* Called before each exchange. Tells the coordinator that this rank has come to it, and returns when the rank is to make it: at
 * once, unless a member that was late is to come back first. Does nothing in a job without a quorum. */
void quorum_arrive(struct trainer *t);
/* Whether a round has closed without this rank, which goes on with its own steps. It is in no group then. */
bool quorum_is_late(const struct trainer *t);
/* This rank has left its steps, and holds until it is a member of another generation. */
void quorum_hold_outside(struct trainer *t);

#endif
