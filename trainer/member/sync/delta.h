#ifndef DDP_TRAINER_MEMBER_SYNC_DELTA_H
#define DDP_TRAINER_MEMBER_SYNC_DELTA_H

#include "trainer/member/sync/strategy.h"

/* The weighted sum D of all ranks' deltas, in one of the wire's formats (wire.h). First the ranks agree that they mean
 * the same round and start from the same shared model; the votes travel with that. fp32 is then summed by an
 * all-reduce. Codes of two ranks are gathered: each rank adds up the decoded values in rank order, so both get the same
 * bits. With more ranks (delta_sliced) each rank owns a slice of the floats, so that what a rank sends does not grow
 * with their number:
 *
 *     every rank sends each owner the codes of the owner's slice
 *     the owner of a slice: S = sum of w q over the other ranks + w (x - e) + e, then sends the codes of S to all
 *     D is what these codes decode to, for the owner too; e becomes S - D in the owner's slice, else x - q
 *
 * A rank that saw no samples while others did has w = 0, and keeps e outside its slice.
 *
 * The owner's own delta takes part without rounding, so in its slice e is not needed for it and keeps what the codes of
 * the sum lost. One exchange at a time.
 *
 * Until delta_wait has succeeded, nothing but `x` was written. Where codes are sent, x is as it was until delta_sum. */

struct delta;
struct delta *delta_open(struct sync *s); /* borrows s */
void delta_close(struct delta *d);        /* waits for what is under way; NULL is fine */

struct delta_send {
    float *x;            /* device memory, like the others; attached to the group. Holds e already */
    float *error;        /* e; NULL with fp32. delta_sum writes the new one */
    const float *shared; /* compared between ranks; parameters of the round's start */
    float *tail;         /* config.tail floats: votes; the sum over ranks comes back by delta_sum */
    const struct sync_tensor
        *tensors; /* the parts of x that are sent, in rising order; borrowed until delta_sum */
    size_t tensor_count;
    int64_t round, local_samples, global_samples; /* weights: this rank's samples of all */
    double progress;                              /* the part of the run that this rank has made, 0 to 1 */
};
/* Where a second thread helps (coll_overlaps), the exchange may still run when this returns. Errors besides
 * the group's: OUT_OF_RANGE: this rank's x is not finite; ABORTED: another's is not; FAILED_PRECONDITION:
 * ranks differ. All may come from delta_wait instead. */
MUST_CHECK enum err_code delta_start(struct delta *d, const struct delta_send *send, struct err *e);
MUST_CHECK enum err_code delta_wait(struct delta *d, struct err *e);
/* Measures the round (sync_measure). x becomes D. */
void delta_sum(struct delta *d);

/* The largest delta_send.progress of all ranks. Valid after delta_wait. */
double delta_progress(const struct delta *d);

/* When the group has ended within an exchange: x becomes what delta_sum would make of e. False: this rank had not sent all
 * that it sends, so the exchange has succeeded nowhere; x is as it was. */
bool delta_keep(struct delta *d);

/* Scales e by the weight of an exchange with these samples, except in this rank's slice, where e counts in full. A rank without samples
 * counts as if all ranks had the same number: no later exchange could send its e. */
void delta_weigh_error(struct delta *d, float *error, const struct sync_tensor *tensors, size_t count,
                       int64_t local_samples, int64_t global_samples);

bool delta_sliced(const struct sync_spec *spec, int world_size);
/* For a rank that had another rank or world size when `error` was written: zeroes the slice that it owned then, and the
 * one that it owns now, because e has another meaning inside a slice. */
void delta_drop_slices(struct delta *d, float *error, const struct sync_tensor *tensors, size_t count,
                       int old_rank, int old_world_size);

#endif
