#ifndef DDP_TRAINER_MEMBER_SYNC_BUCKET_H
#define DDP_TRAINER_MEMBER_SYNC_BUCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/member/coll/coll.h"

/* Runs the all-reduces of buckets in the order they are given: at once, or on one thread of its own. Owner's
 * thread only; while buckets are under way the group is the runner's. */

struct bucket_runner;
struct bucket_runner *bucket_open(struct coll_group *group, bool thread); /* borrows the group */
void bucket_close(struct bucket_runner *r);                               /* waits for what is under way */
/* Errors show in bucket_wait; after one, nothing more is run. */
void bucket_put(struct bucket_runner *r, float *data, size_t count);
/* Until all that was put is done, or, on a device, comes before what it is told next. */
MUST_CHECK enum err_code bucket_wait(struct bucket_runner *r, struct err *e);

#endif
