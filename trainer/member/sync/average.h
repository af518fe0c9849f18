#ifndef DDP_TRAINER_MEMBER_SYNC_AVERAGE_H
#define DDP_TRAINER_MEMBER_SYNC_AVERAGE_H

#include "trainer/member/sync/strategy.h"

/* A round whose result is the weighted mean of all ranks' parameters. diloco makes the same round with an
 * outer learning rate of 1, no outer momentum, fp32 on the wire, one fragment and no overlap, because its
 * outer step then ends at the mean. */

MUST_CHECK enum err_code average_begin(struct sync *s, struct err *e);
MUST_CHECK enum err_code average_join(struct sync *s, struct err *e);
void average_take(struct sync *s, const struct sync_state *in);

#endif
