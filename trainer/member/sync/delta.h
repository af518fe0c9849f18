#ifndef DDP_TRAINER_MEMBER_SYNC_DELTA_H
#define DDP_TRAINER_MEMBER_SYNC_DELTA_H

#include "trainer/member/sync/strategy.h"

/* The weighted sum of all ranks' deltas, in one of the wire's formats (wire.h). First the ranks agree that they mean
 * the same round and start from the same shared model; the votes travel with that. Then fp32 is summed by an
 * all-reduce; in other formats each rank gets the codes of all ranks and adds up the decoded values in rank order, so
 * all ranks get the same bits. One exchange at a time.
 *
 * Until delta_wait has succeeded, nothing but `x` was written. Where codes are sent, x is as it was until delta_sum. */

struct delta;
struct delta *delta_open(struct sync *s); /* borrows s */
void delta_close(struct delta *d);        /* waits for what is under way; NULL is fine */

struct delta_send {
    float *x;            /* device memory, like the others; attached to the group */
    const float *shared; /* compared between ranks; parameters of the round's start */
    float *tail;         /* config.tail floats: votes; the sum over ranks comes back by delta_sum */
    const struct sync_tensor
        *tensors; /* the parts of x that are sent, in rising order; borrowed until delta_sum */
    size_t tensor_count;
    int64_t round, local_samples, global_samples; /* weights: this rank's samples of all */
};
/* Where a second thread helps (coll_overlaps), the exchange may still run when this returns. Errors besides
 * the group's: OUT_OF_RANGE: this rank's x is not finite; ABORTED: another's is not; FAILED_PRECONDITION:
 * ranks differ. All may come from delta_wait instead. */
MUST_CHECK enum err_code delta_start(struct delta *d, const struct delta_send *send, struct err *e);
MUST_CHECK enum err_code delta_wait(struct delta *d, struct err *e);
/* Measures the round (sync_measure). x becomes the sum; error (device memory; NULL with fp32) becomes x minus the
 * decoded value of this rank's codes. */
void delta_sum(struct delta *d, float *error);

#endif
