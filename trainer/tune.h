#ifndef DDP_TRAINER_TUNE_H
#define DDP_TRAINER_TUNE_H

#include "trainer/trainer.h"

/* Takes over the values of a job that was tuned (base/job/job_tune.h). The coordinator tells rank 0 only. Rank 0 votes in
 * the tail of a step, so that all ranks take the same values over between the same two steps: after a step of all-reduce,
 * or at the end of a round. */

float tune_vote(const struct trainer *t); /* this rank's vote for the next step */
/* After a step whose tail holds a vote: all ranks take over what rank 0 has heard. Collective. */
MUST_CHECK enum err_code tune_take(struct trainer *t, struct err *e);
/* When a group has formed, before its first step: all ranks take over the values that the coordinator gave rank 0 with the
 * generation. Their own job files may be older. Collective. */
MUST_CHECK enum err_code tune_begin(struct trainer *t, struct err *e);

#endif
