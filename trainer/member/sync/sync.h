#ifndef DDP_TRAINER_MEMBER_SYNC_SYNC_H
#define DDP_TRAINER_MEMBER_SYNC_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/device/device.h"
#include "trainer/member/coll/coll.h"

/* How ranks are kept in step: a table of strategies (strategy.h), of which the job file names one. Nobody
 * outside this folder asks which. A step of the loop is
 *
 *     backward, with sync_grads_ready for each piece of the gradient array as it becomes final
 *     sync_before_step      gradients are as the optimizer wants them
 *     optimizer
 *     sync_after_step       parameters are as the next forward wants them
 *
 * Weights. Gradients are sums over samples divided by sync_divisor(): where ranks' gradients are added up,
 * each divides by the samples of the whole step; where ranks step on their own, each divides by its own
 * samples, and the average over a round is weighted by the samples that each rank saw in it. A rank without
 * samples in a step still makes all the calls.
 *
 * Errors: ABORTED, a peer is gone or the generation is over. This rank's parameters are then still its own.
 *
 * Threads: the owner's only. Where overlap pays (coll_overlaps) one thread inside runs the buckets in order;
 * between the first sync_grads_ready and sync_before_step the owner makes no collective call of its own. Nor
 * does it between two steps, but after sync_join. */

#define SYNC_MAX_ARRAYS 4

/* Arrays of the strategy's own besides parameters and gradients. They are part of the run's state, so the
 * caller owns them: zeroed when the run starts, attached to each group, and with `kept` in snapshots. */
struct sync_array {
    const char *name; /* in snapshots: "<tensor>.<name>" */
    bool kept;
};
size_t sync_arrays(const struct sync_spec *spec, struct sync_array out[SYNC_MAX_ARRAYS]);

struct sync;
struct sync_config {
    struct sync_spec spec;
    int world_size;
    float *params, *grads;          /* attached to the group, whole; the same layout on every rank */
    float *arrays[SYNC_MAX_ARRAYS]; /* those of sync_arrays, attached */
    size_t count;                   /* floats in each */
    struct device *device;          /* what the arrays are memory of */
    size_t bucket;                  /* floats; 0: 1 Mi */
    int thread; /* 1 or 0: buckets run on a thread of their own, or not; -1: as coll_overlaps says */
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

/* Waits for an exchange that is under way between two steps, and applies what came: before the owner makes a
 * collective call of its own. Nothing to do where nothing is under way. */
MUST_CHECK enum err_code sync_join(struct sync *s, struct err *e);
/* Makes parameters equal on every rank now, ending the round early (end of training). Collective. */
MUST_CHECK enum err_code sync_settle(struct sync *s, struct err *e);
/* Whether parameters are equal on every rank at this moment. */
bool sync_settled(const struct sync *s);

/* ---- loss and votes: a few floats at the end of an array that is summed over ranks anyway */

/* The array that carries them: what the owner writes at its end before sync_grads_ready of that end, or
 * before sync_before_step, is the ranks' sum when sync_voted. Weighted as the array is: above 0 stays above
 * 0 where the voter saw samples. Memory of the device, config.count floats. */
float *sync_carrier(const struct sync *s);
/* Whether the step that just ended brought the ranks' sums. */
bool sync_voted(const struct sync *s);
/* Whether every step does, so that its loss is that of all ranks. */
bool sync_votes_each_step(const struct sync *s);

/* ---- for snapshots */

/* Whether ranks hold states of their own under this strategy: parameters within a round, the optimizer's
 * moments at any time. False in a world of one. The same for the life of s. */
bool sync_ranks_differ(const struct sync *s);

/* The place inside a round: with states of their own, ranks are kept each by itself, so that a run can resume
 * in mid-round. local_samples is this rank's own. Nothing is under way (sync_join). */
struct sync_state {
    int64_t steps; /* since the last average */
    int64_t local_samples, global_samples;
};
void sync_save(const struct sync *s, struct sync_state *out);
void sync_load(struct sync *s, const struct sync_state *in);

#endif
