#ifndef DDP_TRAINER_MEMBER_SYNC_SYNC_H
#define DDP_TRAINER_MEMBER_SYNC_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/device/device.h"
#include "trainer/member/coll/coll.h"

/* Keeps ranks in step by one of several strategies (strategy.h). The job file names it, and code outside this
 * folder does not depend on which it is. A step of the loop is
 *
 *     backward, with sync_grads_ready for each piece of the gradient array as it becomes final
 *     sync_before_step      makes the gradients ready for the optimizer
 *     optimizer
 *     sync_after_step       makes the parameters ready for the next forward pass
 *     sync_gather           the same if each rank has updated a part of them, or sync_gather_pieces
 *
 * Weights. Gradients are sums over samples divided by sync_divisor(). If the strategy adds up the ranks'
 * gradients, each rank divides by the samples of the whole step. If ranks step on their own, each divides by
 * its own samples, and the average over a round is weighted by the samples that each rank saw in the round. A
 * rank without samples in a step still makes all the calls.
 *
 * Errors: ABORTED: a peer is gone, or the generation is over. If an exchange of parameters fails, this rank's
 * parameters are then unchanged. If the sum of gradients fails on a GPU, that may show only after the
 * optimizer was queued behind it.
 *
 * Threads: the owner's only. If overlap pays off (coll_overlaps), an internal thread runs the buckets in
 * order. The owner makes no collective call of its own between the first sync_grads_ready and
 * sync_before_step, and calls sync_join before it makes one between two steps. */

#define SYNC_MAX_ARRAYS 4
#define SYNC_MAX_TAIL 16

/* An array that a strategy needs besides parameters and gradients. These arrays are part of the run's state:
 * the caller owns them, zeroes them when the run starts, attaches them to each group, and saves those with
 * `kept` in snapshots. */
struct sync_array {
    const char *name; /* in snapshots: "<tensor>.<name>" */
    bool kept;
    /* Each rank has values of its own (error feedback). False: equal on all ranks whenever sync_settled is
     * true. A snapshot keeps a shared array once, and an own array in each rank's part. */
    bool own;
};
/* auto: those of all its choices. */
size_t sync_arrays(const struct sync_spec *spec, struct sync_array out[SYNC_MAX_ARRAYS]);

/* Whether the strategy's group needs the connections of coll_config.pairs. */
bool sync_wants_pairs(const struct sync_spec *spec, int world_size);

/* Floats of one tensor. */
struct sync_tensor {
    size_t offset, count;
};

struct sync;
struct sync_config {
    struct sync_spec spec;
    int rank, world_size;
    float *params, *grads;          /* attached to the group, whole; the same layout on every rank */
    float *arrays[SYNC_MAX_ARRAYS]; /* the arrays of sync_arrays, attached to the group */
    size_t count;                   /* floats in each */
    /* Number of floats at the end of each array that carry the loss, and then the votes. Averaging writes the last
     * of them itself, to measure the round (sync_round). */
    size_t tail;
    /* The parameters among the rest, in rising order; borrowed for sync_open. NULL: all of it is one
     * tensor. */
    const struct sync_tensor *tensors;
    size_t tensor_count;
    /* shard: optimizer. Rank r updates params[parts[r], parts[r + 1]) only, and needs the sum of the gradients only there; the
     * last of world_size + 1 is count - tail. Borrowed for sync_open. NULL: each rank updates all. SYNC_ALLREDUCE only. */
    const size_t *parts;
    struct device *device; /* the device whose memory holds the arrays */
    size_t bucket;         /* floats in a bucket; 0: 1 Mi */
    int thread; /* 1 or 0: buckets run on a thread of their own, or not; -1: as coll_overlaps says */
};

MUST_CHECK enum err_code sync_open(struct sync **out, struct coll_group *group,
                                   const struct sync_config *config, struct err *e);
/* Call it after coll_end and before coll_close, even after an abort: it frees memory of the device, which waits for a
 * sum that a lost peer has left unfinished. NULL is fine. */
void sync_close(struct sync *s);

/* Continues with other values of the same strategy: every, outer_lr, outer_momentum, mix, overlap, and warm while its
 * steps of all-reduce last, or lower than it was. All ranks call it with equal values between the same two steps, at a
 * boundary: where sync_voted is true. A round that has begun ends according to the new `every`, at the latest at the next step.
 * `auto` changes nothing. The result is that of sync_save, sync_open with these values, and sync_load. On an error nothing has changed.
 * FAILED_PRECONDITION: the values need another strategy or other arrays (job_sync_check_change), or an exchange is under
 * way. */
MUST_CHECK enum err_code sync_tune(struct sync *s, const struct sync_spec *spec, struct err *e);

/* Once before each step, and after sync_load before an exchange: how many steps the run has made, and how many it makes in
 * all. Ranks need not have made the same number. */
void sync_at_step(struct sync *s, int64_t step, int64_t steps);
/* Returns the divisor of a rank's gradient sums, at least 1. */
int64_t sync_divisor(const struct sync *s, int64_t local_samples, int64_t global_samples);

/* Says that grads[offset, offset + count) is final. Each float is reported exactly once a step, in the same
 * order on every rank (backward order: from the end), or none is: then sync_before_step takes the whole
 * array. With accumulation, gradients are final in the last micro-batch only. Adjacent pieces are merged into
 * buckets. Errors are returned by sync_before_step. */
void sync_grads_ready(struct sync *s, size_t offset, size_t count);
MUST_CHECK enum err_code sync_before_step(struct sync *s, struct err *e);
/* Rounds of a given time (sync_spec.every_ms): the present step is the last one of its round. All ranks then come to
 * sync_after_step with the same sum of global_samples since the round began, after different numbers of steps. Rounds of a
 * number of steps end by themselves. made: steps of the run at the end of the round, which ranks know only now. waited_ns:
 * time that this rank waited for the others. */
void sync_end_round(struct sync *s, int64_t made, int64_t waited_ns);
MUST_CHECK enum err_code sync_after_step(struct sync *s, int64_t local_samples, int64_t global_samples,
                                         struct err *e);

/* sync_config.parts. After sync_after_step, or later between two steps: each rank gets the parameters that the others have
 * updated. */
MUST_CHECK enum err_code sync_gather(struct sync *s, struct err *e);
/* The same for `array`, which is attached to the group, in pieces that arrive one after the other while the caller
 * goes on. Rank r has array[parts[r], parts[r + 1]). The array is divided into lanes, and each lane into `count`
 * pieces: piece i is all [cuts[l (count + 1) + i], cuts[l (count + 1) + i + 1]). Each lane ends where a part ends.
 * count: at most COMM_MARKS. */
struct sync_pieces {
    float *array;
    const size_t *parts, *cuts;
    size_t lanes, count;
};
/* Whether pieces arrive while the caller computes. If not, sync_gather is faster. */
bool sync_gathers_beside(const struct sync *s);
/* The number of lanes that uses the links between ranks best. With one lane, a piece crosses the group from its
 * owner. Between two nodes only one direction of the link is then in use, so the second node's parts get a lane of
 * their own. */
size_t sync_gather_lanes(const struct sync *s);
void sync_gather_pieces(struct sync *s, const struct sync_pieces *pieces);
/* Waits for the first `count` pieces. On a device they come before the operations that it is given next. When it has waited for all
 * of them, as sync_join does, too, the owner may make collective calls again. */
MUST_CHECK enum err_code sync_await_pieces(struct sync *s, size_t count, struct err *e);

/* Adds time that this rank waited for the others to come to the exchange, for sync_round of the exchange that is made next. */
void sync_add_wait(struct sync *s, int64_t waited_ns);
/* The next sync_after_step makes no exchange even if the round is over; in that case sync_round_due is true. Call it when the
 * ranks stop within a round, or when an error keeps them from agreeing whether to stop. Not allowed with overlap. */
void sync_hold_round(struct sync *s);

/* Exchanges that the group, and those before it from whose memory it goes on, have made. */
int64_t sync_rounds(const struct sync *s);
/* Whether the next sync_after_step makes an exchange. */
bool sync_round_ends(const struct sync *s);
/* Whether another rank has made more steps of this round: the ranks were stopped within it, and have resumed. */
bool sync_catches_up(const struct sync *s);
/* Steps of the round, or of the present fragment's round, that follow the next one; of a number of steps. */
int64_t sync_steps_after_next(const struct sync *s);

/* Waits for an exchange that is under way between two steps, and applies its result. Also waits for the pieces of a
 * gather. The owner calls this before it makes a collective call of its own. Does nothing if no exchange is under
 * way. */
MUST_CHECK enum err_code sync_join(struct sync *s, struct err *e);
/* True if the round's steps are complete but its exchange failed in the previous group, and sync_load has restored the
 * round. */
bool sync_round_due(const struct sync *s);
/* Makes that exchange: as sync_after_step does at the round's last step. Collective. */
MUST_CHECK enum err_code sync_exchange(struct sync *s, struct err *e);
/* Makes parameters equal on every rank now, ending the round early (end of training). Collective. */
MUST_CHECK enum err_code sync_settle(struct sync *s, struct err *e);
/* Whether parameters are equal on every rank at this moment. */
bool sync_settled(const struct sync *s);

/* ---- what a round was like */

/* The last exchange of parameters that was applied. norm: |D| of D, the members' deltas merged by weight; NAN: in a
 * world of one under `average`. agreement: the mean cosine between the members' deltas and D. In
 * the mean a member counts as in D, by its weight times the length of its delta, so it is |D| / sum of w |delta|: 1 if
 * all deltas have one direction, 0 if they cancel out, 1 / sqrt(n) for n equally long deltas at right angles. NAN: in a
 * world of one, or if no parameter moved. norm and agreement are the same on all ranks. */
struct sync_round {
    int64_t round;    /* 1 is the first that the group made */
    int64_t steps;    /* of this rank since the exchange before it */
    int64_t samples;  /* of this rank in its round; of the fragments' rounds, since the exchange before it */
    uint64_t wait_ns; /* this rank stood still for the exchange: until the others came to it, and in it */
    uint64_t bytes;   /* that this rank sent, as coll_get_stats counts them */
    double norm, agreement;
};
/* True once for each round. A round that the caller has not taken is lost when the next exchange begins. */
bool sync_take_round(struct sync *s, struct sync_round *out);

/* Called for each round; *low is 0 at first. True once: in SYNC_LOW_ROUNDS rounds in a row the agreement was below
 * SYNC_LOW_AGREEMENT (base/job/job_sync.h). Rounds without an agreement do not count. */
bool sync_agreement_stays_low(int *low, double agreement);

/* ---- the shared model, which is evaluated and saved as the run's result. Within a round it is the model
 * that the last exchange made, and the ranks' own parameters differ from it. */

const float *sync_shared(const struct sync *s); /* device memory, config.count floats */
/* For a caller that restores a position within a round: returns the array of the shared model, to be filled.
 * NULL: the parameters are the model. */
float *sync_shared_array(struct sync *s);
/* Makes the parameters, which are equal on all ranks, the shared model, and begins a round: at the start of a
 * run, and after a snapshot's shared model was loaded. */
void sync_start(struct sync *s);

/* ---- loss and votes: a few floats at the end of an array that is summed over ranks anyway */

/* The array that carries them: device memory, config.count floats. The owner writes to its end before it
 * reports that end by sync_grads_ready, or before sync_before_step; when sync_voted is true, the end holds
 * the sum over ranks. The first float is the loss, whose sum is weighted as the array is. The sum of the votes has no weights, so a
 * vote above 0 stays above 0. */
float *sync_carrier(const struct sync *s);
/* Whether the step that just ended brought the sums over ranks. */
bool sync_voted(const struct sync *s);
/* Whether every step brings them, so that the loss of a step is that of all ranks. */
bool sync_votes_each_step(const struct sync *s);

/* ---- for snapshots */

/* Whether each rank has a state of its own under this strategy: parameters within a round, and the
 * optimizer's moments at any time. Does not change while s is open. */
bool sync_ranks_differ(const struct sync *s);

#define SYNC_FRAGMENTS_MOST 1024 /* as a job file allows */

/* The position in a round, so that a run can resume in mid-round. local_samples is this rank's own. No
 * exchange may be under way (sync_join), except for sync_leave. */
struct sync_state {
    int64_t steps; /* since the round began */
    int64_t local_samples, global_samples;
    /* 1 + the fragment whose turn it is, and the steps of its turn; 0: `steps` tells, as in snapshots of earlier versions */
    int64_t turn, turn_steps;
    /* By which the own arrays are divided among ranks. 0: not known, as in snapshots of earlier versions, or they are not divided */
    int64_t fragments;
    bool uneven; /* parameters differ between ranks even when steps is 0 */
    /* Not in snapshots: */
    int64_t rounds; /* exchanges that the group has made */
    bool apart;     /* ranks make steps of their own; false: all hold the same after each step */
    bool shared;    /* the array of the shared model holds it; false: the parameters are the model */
    int64_t
        least; /* the round has at least so many steps, whatever `every` says: a rank has made them. 0: as it says */
    int64_t unsettled; /* exchanges that are left of a sync_settle that has begun */
    struct sync_samples {
        int64_t local, global;
    } seen[SYNC_FRAGMENTS_MOST]; /* by fragment: samples of earlier turns since its last exchange */
    struct {        /* the exchange that was under way, and the part of `steps` that belongs to it */
        bool begun; /* there was one */
        int64_t steps, local_samples, global_samples;
        bool
            kept; /* the array in which the exchange was made holds the error feedback as it is if the exchange counts */
    } sent;
    /* Of the group in which this rank got its own arrays (sync_array.own); world_size 0: there was none. */
    int rank, world_size;
};
void sync_save(const struct sync *s, struct sync_state *out);
void sync_load(struct sync *s, const struct sync_state *in);

/* For a caller that then ends the round in fp32 by another sync_settle: all ranks' parameters take in what earlier exchanges have lost
 * by rounding (error feedback), which becomes 0. round: with the samples that settle will count. Collective. An error leaves a
 * mixture. */
MUST_CHECK enum err_code sync_take_feedback(struct sync *s, const struct sync_state *round, struct err *e);

/* ---- for a rank that goes on in another group, after an exchange that may have succeeded on other ranks only */

/* In place of sync_save when the group has ended (coll_end): another exchange may be under way, and what it needs to count
 * after all is kept. */
void sync_leave(struct sync *s, struct sync_state *out);
/* In place of sync_load: the exchange that was under way counts. This rank's change is part of the shared model that other
 * ranks have made of it. The caller has filled in that model (sync_shared_array) and the shared arrays; this call makes of
 * the rank's own parameters and arrays what joining that exchange would have made of them. */
void sync_take_exchange(struct sync *s, const struct sync_state *in);

#endif
