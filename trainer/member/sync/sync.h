#ifndef DDP_TRAINER_MEMBER_SYNC_SYNC_H
#define DDP_TRAINER_MEMBER_SYNC_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/member/coll/coll.h"
#include "trainer/device/device.h"

/* How ranks are kept in step: a vtable with two strategies, all-reduce of gradients at every step, and
 * averaging of parameters every H steps. A step of the loop is
 *
 *     backward, with sync_grads_ready for each piece of the gradient array as it becomes final
 *     sync_before_step      gradients are as the optimizer wants them
 *     optimizer
 *     sync_after_step       parameters are as the next forward wants them
 *
 * Weights. Gradients are sums over samples divided by sync_divisor(): all-reduce adds the ranks' arrays, so
 * each divides by the samples of the whole step; averaging steps locally, so each divides by its own, and the
 * average over a round is weighted by the samples that each rank saw in it. A rank without samples in a step
 * still makes all the calls.
 *
 * Threads: the owner's only. Where overlap pays (coll_overlaps) one thread inside runs the buckets in order;
 * between the first sync_grads_ready and sync_before_step the owner makes no collective call of its own. */

struct sync;
struct sync_config {
    enum sync_type type;
    int64_t every;         /* average: H */
    float *params, *grads; /* arrays of coll_alloc, whole; the same layout on every rank */
    size_t count;          /* floats in each */
    struct device *device; /* average: what the arrays are memory of */
    size_t bucket;         /* floats; 0: 1 Mi */
    int overlap;           /* 1 or 0 forces it; -1: as coll_overlaps says */
};

MUST_CHECK enum err_code sync_open(struct sync **out, struct coll_group *group,
                                   const struct sync_config *config, struct err *e);
void sync_close(struct sync *s); /* before coll_close; NULL is fine. After an abort too. */

/* What a rank divides its gradient sums by. At least 1. */
int64_t sync_divisor(const struct sync *s, int64_t local_samples, int64_t global_samples);

/* grads[offset, offset + count) is final. Each float of the array exactly once a step, in the same order on
 * every rank (backward order: from the end); touching pieces are merged into buckets. An error shows in
 * sync_before_step. With accumulate, only in the last micro-batch. Pieces that never came are taken up by
 * sync_before_step: so a caller may leave all calls out. */
void sync_grads_ready(struct sync *s, size_t offset, size_t count);
MUST_CHECK enum err_code sync_before_step(struct sync *s, struct err *e);
MUST_CHECK enum err_code sync_after_step(struct sync *s, int64_t local_samples, int64_t global_samples,
                                         struct err *e);

/* Makes parameters equal on every rank now, ending the round early (end of training, evaluation of the shared
 * model). Nothing to do for all-reduce. Collective. */
MUST_CHECK enum err_code sync_settle(struct sync *s, struct err *e);
/* Whether parameters are equal on every rank at this moment. */
bool sync_settled(const struct sync *s);

/* The place inside a round, for snapshots: with averaging, parameters and optimizer state differ between
 * ranks until the round ends, so whoever wants to resume in mid-round keeps them by rank. local_samples is
 * this rank's own. */
struct sync_state {
    int64_t steps; /* since the last average */
    int64_t local_samples, global_samples;
};
void sync_save(const struct sync *s, struct sync_state *out);
void sync_restore(struct sync *s, const struct sync_state *in);

#endif
