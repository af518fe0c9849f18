#ifndef DDP_TRAINER_OUTER_H
#define DDP_TRAINER_OUTER_H

#include "trainer/trainer.h"

/* The outer optimizer of diloco. If the job file has neither outer_lr nor outer_momentum, they follow from its other keys
 * (job_sync_choose_outer). A run that goes on keeps those that it has used so far, although these keys may have changed:
 * snapshots have them, and replaced ranks get them from the others. */

/* The job's `sync` with the outer optimizer in use. */
struct sync_spec outer_spec(const struct trainer *t);
/* Fills in outer_lr and outer_momentum. */
void outer_put(const struct trainer *t, struct snapshot_place *out);
/* Collective, before the strategy's state is loaded: from now on the run uses those of the place, if the job file has none. */
MUST_CHECK enum err_code outer_take(struct trainer *t, const struct snapshot_place *place, struct err *e);
/* Rank 0 logs which are in use, if the job file has none. */
void outer_log(const struct trainer *t);

#endif
