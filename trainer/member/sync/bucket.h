#ifndef DDP_TRAINER_MEMBER_SYNC_BUCKET_H
#define DDP_TRAINER_MEMBER_SYNC_BUCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/member/coll/coll.h"

/* Runs the all-reduces and reduce-scatters of buckets, and gathers, in the order in which they are given: at once, or on a thread of
 * its own. Called by the owner's thread only. Until it has waited for all of them, only this module uses the group. */

struct bucket_runner;
struct bucket_runner *bucket_open(struct coll_group *group, bool thread); /* borrows the group */
void bucket_close(struct bucket_runner *r); /* waits for the bucket that is being summed */
/* Adds a bucket. wire: what is sent of each float. bucket_wait returns its error; after an error no further bucket is summed. */
void bucket_put(struct bucket_runner *r, float *data, size_t count, enum device_type wire);
/* A bucket of which each rank needs its part only. Takes over offsets, as of coll_reduce_scatter. */
void bucket_put_parts(struct bucket_runner *r, float *data, size_t *offsets, enum device_type wire);
/* A gather, as of coll_gather_ranges. Takes over ranges: first where the ranks' parts begin, then where they end.
 * Since the last bucket_wait the caller has given only gathers, at most COMM_MARKS of them. */
void bucket_put_gather(struct bucket_runner *r, float *data, size_t *ranges);
/* Waits until all buckets are summed. On a device it is enough that the sums come before the operations that
 * the device is given next. */
MUST_CHECK enum err_code bucket_wait(struct bucket_runner *r, struct err *e);
/* The same for the first `count` gathers since the last bucket_wait. */
MUST_CHECK enum err_code bucket_wait_gathers(struct bucket_runner *r, size_t count, struct err *e);

#endif
