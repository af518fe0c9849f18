#ifndef DDP_TRAINER_MOMENTS_H
#define DDP_TRAINER_MOMENTS_H

#include "trainer/trainer.h"

/* shard: optimizer. Each rank has the moments of its part only. These functions bring the moments of all ranks together, and divide them
 * again. The moments pass through the array of the gradients, which is not needed between two steps. All ranks of the group make the same
 * calls; an optimizer without parts needs none of them. */

/* moments: of a whole state, in host memory, valid after the device's next wait; NULL: this rank does not want them. */
MUST_CHECK enum err_code moments_gather(struct trainer *t, float *moments, struct err *e);
/* Each rank takes its part. moments: of a whole state; only rank `from` reads them. */
MUST_CHECK enum err_code moments_spread(struct trainer *t, const float *moments, int from, struct err *e);

/* Call it before the members change, if no rank is lost. One rank of each node then holds all moments in host memory until the next
 * step. If one of these ranks has too little memory, no rank holds any, and this process no longer stays (trainer_stays). */
MUST_CHECK enum err_code moments_hold(struct trainer *t, struct err *e);
/* Whether this rank holds the moments that belong to its parameters. */
bool moments_held(const struct trainer *t);
void moments_release(struct trainer *t);
/* At the end of a generation. A lost rank takes its moments with it, so the state is not whole if this rank does not hold them. */
void moments_leave(struct trainer *t);

#endif
