#include "trainer/step.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "trainer/engine/divide.h"
#include "trainer/handover.h"
#include "trainer/keep.h"
#include "trainer/member/link/watch.h"
#include "trainer/parameters.h"
#include "trainer/rebalance.h"
#include "trainer/round/quorum.h"
#include "trainer/round/round_stop.h"
#include "trainer/round/timed_round.h"
#include "trainer/signals.h"
#include "trainer/test_wait.h"
#include "trainer/tune.h"

static enum err_code phase_fails(const struct trainer *t, const char *phase, struct err *e)
{
    if (!fault_hit(phase))
        return ERR_OK;
    return err_set(e, ERR_INTERNAL, "%s fails after step %lld", phase, (long long)t->engine.step);
}

/* Only rank 0's clock decides, so that all ranks do the same. */
static float time_vote(const struct trainer *t, const struct job_every *every, int64_t last_ms)
{
    return t->formation.rank == 0 && every->unit == EVERY_MS && every->count > 0 &&
           clock_boot_ms() - last_ms >= every->count;
}

static void votes_put(const struct trainer *t, float *tail)
{
    tail[TAIL_STOP] = link_stop_asked(t->link);
    tail[TAIL_SIGNAL] = (float)trainer_stop_signal;
    tail[TAIL_SNAPSHOT] = time_vote(t, &t->spec->snapshot.every, t->last_snapshot_ms);
    tail[TAIL_EVAL] = time_vote(t, &t->spec->eval.every, t->last_eval_ms);
    tail[TAIL_TUNE] = tune_vote(t);
    tail[TAIL_HANDOVER] = handover_vote(t);
}

/* Within a round votes need not go with the gradients, so those that came while the step was computed go with this step, too.
 * Otherwise a stop in a long step would wait for one more step, or one more round. */
static void votes_renew(const struct trainer *t, float *tail)
{
    const struct engine *n = &t->engine;
    float *votes = sync_carrier(t->formation.sync) + n->model->count + TAIL_STOP;
    if (sync_votes_each_step(t->formation.sync))
        return;
    votes_put(t, tail);
    n->device->ops->upload(n->device, votes, tail + TAIL_STOP, (TAIL_USED - TAIL_STOP) * sizeof(float));
}

static void piece_ready(void *arg, size_t offset, size_t count)
{
    struct trainer *t = arg;
    if (rebalance_hold_piece(t, offset, count))
        return;
    int64_t began = clock_mono_ns();
    sync_grads_ready(t->formation.sync, offset, count);
    t->interval.exposed_ns += clock_mono_ns() - began;
}

static enum err_code exchange_gradients(struct trainer *t, struct err *e)
{
    int64_t began = clock_mono_ns();
    enum err_code code = sync_before_step(t->formation.sync, e);
    t->interval.exposed_ns += clock_mono_ns() - began;
    return code;
}

/* On a GPU, exchange_gradients returns before the sum is complete, and a lost peer leaves a part of it. A process that may go on
 * without that peer queues the update only behind a sum that is complete. The update then needs no peer, so that nothing but
 * this rank's own GPU can cut it off. */
static enum err_code await_gradients(struct trainer *t, struct err *e)
{
    struct device *d = t->engine.device;
    if (d->host || t->formation.world_size == 1 || !sync_votes_each_step(t->formation.sync) ||
        t->spec->shard == SHARD_OPTIMIZER || t->config->job.max_replacements <= 0)
        return ERR_OK;
    return d->ops->wait(d, e);
}

/* shard: optimizer. The norm of the whole gradient, from the blocks of all ranks, in their order. */
static enum err_code sum_part_squares(struct trainer *t, const struct step *s, struct err *e)
{
    struct engine *n = &t->engine;
    const size_t world = (size_t)t->formation.world_size;
    struct divide d;
    if (!n->optim->part || !s->measured)
        return ERR_OK;
    int64_t began = clock_mono_ns();
    divide_open(&d, n->model, t->spec, t->formation.world_size);
    const size_t most = divide_most(&d, t->formation.world_size);
    double *mine = xcalloc(most, sizeof(*mine)), *all = xcalloc(world * most, sizeof(*all)), sum = 0.0;
    optim_part_squares(n->optim, n->grads.data, mine);
    enum err_code code = n->device->ops->wait(n->device, e);
    if (!code)
        code = coll_allgather(t->formation.group, mine, most * sizeof(*mine), all, e);
    for (size_t i = 0; !code && i < world * most; i++)
        sum += all[i];
    if (!code)
        optim_put_squares(n->optim, sum);
    divide_release(&d);
    free(mine);
    free(all);
    t->interval.exposed_ns += clock_mono_ns() - began;
    return code;
}

enum err_code trainer_exchange_again(struct trainer *t, struct step *s, struct err *e)
{
    struct engine *n = &t->engine;
    const struct device_ops *ops = n->device->ops;
    struct sync *sync = t->formation.sync;
    *s = (struct step){0};
    votes_put(t, s->tail);
    ops->upload(n->device, sync_carrier(sync) + n->model->count, s->tail, TAIL_USED * sizeof(float));
    /* Of a round of a given time that is repeated, an estimate. */
    sync_at_step(sync, (int64_t)engine_steps_made(n), engine_total_steps(n));
    quorum_arrive(t);
    float stop[TAIL_USED] = {0};
    if (round_stop_meets(t) && round_stop_meet_to_exchange(t, false, stop, e))
        return e->code;
    if (t->stopped_within) {
        *s = (struct step){0};
        memcpy(s->tail, stop, sizeof(stop));
        return ERR_OK;
    }
    if (sync_exchange(sync, e))
        return e->code;
    *s = (struct step){0};
    if (sync_voted(sync))
        ops->download(n->device, s->tail, sync_carrier(sync) + n->model->count, TAIL_USED * sizeof(float));
    return n->device->ops->wait(n->device, e);
}

/* Before the exchange at the end of a round, or instead of the rest of it. If the ranks stop, or a peer is lost, the round
 * stays open. */
static enum err_code meet_in_round(struct trainer *t, bool ends, bool wanted, float *stop, struct err *e)
{
    if (ends || wanted)
        quorum_arrive(t);
    if (!wanted && (!ends || !round_stop_meets(t)))
        return ERR_OK;
    if (round_stop_meet_to_exchange(t, wanted, stop, e) || t->stopped_within)
        sync_hold_round(t->formation.sync);
    return e->code;
}

/* Within a round ranks hear nothing of each other. A rank that is to go on in the next generation does not keep it waiting
 * until the round's end. */
static enum err_code round_goes_on(const struct trainer *t, struct err *e)
{
    if (sync_votes_each_step(t->formation.sync) || !link_stays(t->link) || !link_over(t->link) ||
        quorum_is_late(t))
        return ERR_OK;
    return err_set(e, ERR_ABORTED, "generation %lld is over", (long long)t->formation.info.generation);
}

/* What follows the update: parameters of a divided optimizer, and rounds, which measure their waiting themselves. Returns true if it
 * was done. */
static bool exchange_parameters(struct trainer *t, const struct step *s, struct err *lost)
{
    const int64_t began = clock_mono_ns();
    const bool exchanged = sync_after_step(t->formation.sync, s->local, s->global, lost) == ERR_OK &&
                           parameters_exchange(t, lost) == ERR_OK;
    if (sync_votes_each_step(t->formation.sync))
        t->interval.exposed_ns += clock_mono_ns() - began;
    return exchanged;
}

enum err_code trainer_step(struct trainer *t, struct step *s, bool *epoch_ended, struct err *e)
{
    struct engine *n = &t->engine;
    struct formation *f = &t->formation;
    const int64_t began = clock_mono_ns();
    sync_at_step(f->sync, n->step, engine_total_steps(n));
    if (round_goes_on(t, e))
        return e->code;
    test_wait_pace(t);
    test_wait_hold(t);
    test_wait_stuck(t);
    bool timed = timed_round_begin(t);
    step_begin(n, s);
    votes_put(t, s->tail);
    struct step_route route = {
        .divisor = sync_divisor(f->sync, s->local, s->global),
        .carrier = sync_carrier(f->sync),
        /* A device can record a whole pass only if no pieces are reported; a world of one does not need them.
         */
        .ready = f->world_size > 1 || !n->device->ops->record ? piece_ready : NULL,
        .arg = t,
    };
    /* At the end of the run, a rank may be dealt no samples, and then only takes part in the exchange. */
    bool idle = timed && !s->local;
    if (!idle) {
        /* Parts of the gradients are being summed when the backward pass ends. */
        if (rebalance_step_begin(t, e) || phase_fails(t, "step.begin", e) || step_backward(n, s, &route, e) ||
            parameters_await(t, e) || rebalance_gradients_done(t, e) || phase_fails(t, "step.sum", e) ||
            exchange_gradients(t, e) || await_gradients(t, e) || sum_part_squares(t, s, e) ||
            phase_fails(t, "step.update", e))
            return e->code;
        keep_await_copy(t);
        /* Other strategies change parameters between steps. */
        step_update(n, s, t->sync.type == SYNC_ALLREDUCE);
        rebalance_step_end(t, s->local);
    }
    votes_renew(t, s->tail);
    /* If the exchange of parameters fails, the step still counts: it was made on this rank's own parameters.
     */
    struct err lost = {0};
    bool over = timed && timed_round_step(t, s);
    /* If the count fails, the round stays open: no exchange begins, and the step belongs to the round. */
    bool counted = !over || timed_round_count(t, s, &lost) == ERR_OK;
    float stop[TAIL_USED] = {0};
    bool wanted = round_stop_wanted(t, s, clock_mono_ns() - began);
    if (counted && meet_in_round(t, sync_round_ends(f->sync), wanted, stop, &lost))
        counted = false;
    bool exchanged = exchange_parameters(t, s, &lost) && counted;
    /* A GPU may fail every wait until the group has ended, so the step counts without one. */
    if (!exchanged && !n->device->host) {
        step_count(n, s);
        *e = lost;
        return e->code;
    }
    struct step_agreement agreed = {
        .carrier = sync_carrier(f->sync),
        .voted = exchanged && sync_voted(f->sync),
        .all_ranks = sync_votes_each_step(f->sync),
        .rank = f->rank,
        .world_size = f->world_size,
    };
    if (phase_fails(t, "step.end", e) || step_end(n, s, &agreed, epoch_ended, e))
        return e->code;
    if (t->stopped_within)
        memcpy(s->tail, stop, sizeof(stop));
    if (over && exchanged)
        timed_round_end(t, epoch_ended);
    if (!exchanged)
        *e = lost;
    return lost.code;
}
