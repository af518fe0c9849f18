#ifndef DDP_TRAINER_MEMBER_SYNC_ROUND_CLOCK_H
#define DDP_TRAINER_MEMBER_SYNC_ROUND_CLOCK_H

#include "trainer/member/sync/strategy.h"

/* Rounds of a given time (sync_spec.every_ms). All ranks must end a round at the same step, without asking each other at
 * every step. So the exchange that ends a round also says how many steps the next one has: each rank writes the number
 * that its own clock suggests into the tail of the array, and the weighted mean of all ranks comes back.
 * A new group begins with a round of sync_spec.every steps. */

/* Steps of the next round: `steps` took `ns`, with the exchange before them. Grows or shrinks by a factor of at most 16. */
int64_t round_clock_next(int64_t steps, int64_t ns, int64_t every_ms);

void round_clock_start(struct sync *s);   /* before each step */
void round_clock_propose(struct sync *s); /* before an exchange begins */
void round_clock_take(struct sync *s);    /* after it was joined; under_way is still its round */

#endif
