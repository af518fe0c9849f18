#ifndef DDP_TRAINER_ROUND_OUTER_H
#define DDP_TRAINER_ROUND_OUTER_H

#include "trainer/trainer.h"

/* The outer optimizer of diloco. If the job file has neither outer_lr nor outer_momentum, they follow from its other
 * keys (job_sync_choose_outer). A run keeps the values with which it began, although these keys may change: by
 * `ddpctl tune`, or in the job file of a run that goes on. Snapshots have them, and replaced ranks get them from the
 * others. */

/* The job's `sync` with the outer optimizer in use. */
struct sync_spec outer_spec(const struct trainer *t);
/* Fills in outer_lr and outer_momentum. */
void outer_put(const struct trainer *t, struct snapshot_place *out);
/* Collective, before the strategy's state is loaded: from now on the run uses the values of the place, if the job
 * file has none. */
MUST_CHECK enum err_code outer_take(struct trainer *t, const struct snapshot_place *place, struct err *e);
/* The run begins, or goes on from a snapshot, with the values in use. From now on it keeps them. Rank 0 logs them, if
 * the job file has none. */
void outer_begin(struct trainer *t);

#endif
