#ifndef DDP_TRAINER_HANDOVER_H
#define DDP_TRAINER_HANDOVER_H

#include "trainer/trainer.h"

/* The coordinator runs the job on other nodes, without a stop: all ranks finish the same step and wait there, with their
 * state, until it has formed the next generation (daemon/coordinator/core/placement/handover.c). */

/* This rank's vote: 1 if the coordinator has announced a hand-over that this rank has not waited for yet, else 0. */
float handover_vote(const struct trainer *t);
/* Called on all ranks after a step in which some rank has voted so. OK: training goes on in this generation, because the
 * hand-over does not take place, or the run is to stop, or the coordinator did not answer in time. ABORTED: the generation is over;
 * t->handed_over is true. */
MUST_CHECK enum err_code handover_await(struct trainer *t, struct err *e);

#endif
