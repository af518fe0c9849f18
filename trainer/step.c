/* One step: load, forward, backward (sums over samples divided by sync_divisor), sync, clip, update, sync
 * again. What ranks must agree on travels in the tail of the arrays (trainer.h).
 *
 * The device may be far behind: nothing here waits for it before the end of the step. What the host wants to
 * know by then, the outcome, lies on the device; so a step whose loss is not a number is found out after its
 * update, and before anything is made of it. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/fault.h"
#include "base/log.h"
#include "trainer/optim/schedule.h"
#include "trainer/trainer.h"

/* Rank 0's clock decides, so that all ranks do the same. */
static float time_vote(const struct trainer *t, const struct job_every *every, int64_t last_ms)
{
    return t->rank == 0 && every->unit == EVERY_MS && every->count > 0 &&
           clock_boot_ms() - last_ms >= every->count;
}

double trainer_run_progress(const struct trainer *t)
{
    if (t->spec->steps)
        return (double)t->step / (double)t->spec->steps;
    double epoch = (double)t->cursor.epoch + (double)t->cursor.position / (double)t->sampler.samples;
    return epoch / (double)t->spec->epochs;
}

static float *tail_of(const struct trainer *t, float *array)
{
    return array + t->model->count;
}

static void put_tail(struct trainer *t, float *array, const float *tail)
{
    t->device->ops->upload(t->device, tail_of(t, array), tail, TAIL_USED * sizeof(float));
}

/* ---- backward */

/* A rank that computes one shard gives its gradients away as they become final. The first piece ends where
 * the tail begins: the loss is known by then, so the tail goes with it. */
struct going_back {
    struct trainer *t;
    struct step *s;
    int64_t divisor;
    bool told;
};

/* This rank's loss, from the tally into the tail of the array that carries it to the others. */
static void put_loss(struct going_back *g)
{
    struct trainer *t = g->t;
    const struct device_ops *ops = t->device->ops;
    float *loss = tail_of(t, sync_carrier(t->sync)) + TAIL_LOSS;
    ops->tally_mean(t->device, loss, t->tally, (double)g->divisor);
    ops->copy(t->device, &t->outcome->loss, loss, sizeof(*loss));
}

static void ready(void *arg, size_t offset, size_t count)
{
    struct going_back *g = arg;
    struct trainer *t = g->t;
    if (offset + count == t->model->count) {
        put_loss(g);
        g->told = true;
        count += TAIL_FLOATS;
    }
    int64_t began = clock_mono_ns();
    sync_grads_ready(t->sync, offset, count);
    t->interval.exposed_ns += clock_mono_ns() - began;
}

/* What makes the work of two micro-batches the same; 0: the device cannot remember it. */
static uint64_t recording_key(const struct going_back *g, const float *grads, const struct model_batch *b)
{
    const struct trainer *t = g->t;
    struct {
        const float *params, *grads;
        int64_t rows, divisor, same_params;
    } work = {t->params, grads, b->rows, g->divisor, b->same_params};
    if (!t->device->ops->record || t->spec->model.dropout > 0.0 || b->rows == 0)
        return 0;
    uint64_t key = digest64(0, &work, sizeof(work));
    return key ? key : 1;
}

static bool seen_before(struct trainer *t, uint64_t key)
{
    for (size_t i = 0; i < SEEN_WORK; i++)
        if (t->seen[i] == key)
            return true;
    t->seen[t->seen_count++ % SEEN_WORK] = key;
    return false;
}

/* Work that comes up a second time is recorded then, so that what comes up once is not; and all that is
 * chosen and set up at the first time is there. Where pieces are told in between it cannot be recorded. */
static void train(struct going_back *g, float *grads, const struct model_batch *b, model_ready_fn told)
{
    struct trainer *t = g->t;
    const struct device_ops *ops = t->device->ops;
    uint64_t key = told ? 0 : recording_key(g, grads, b);
    if (key && ops->replay(t->device, key))
        return;
    bool record = key && !t->plain && seen_before(t, key);
    if (record)
        ops->record(t->device, key);
    model_train(t->model, t->params, grads, b, 1.0f / (float)g->divisor, t->tally, told, g);
    if (!record || ops->recorded(t->device))
        return;
    t->plain = true;
    log_warn("not_recorded", "rank=%d device=%s", t->rank, LOG_Q(t->device->name));
    model_train(t->model, t->params, grads, b, 1.0f / (float)g->divisor, t->tally, told, g);
}

/* Gradients of all micro-batches of the sampler's share into grads; told as they are final in the last. */
static enum err_code compute(struct going_back *g, float *grads, model_ready_fn told, struct err *e)
{
    struct trainer *t = g->t;
    const struct device_ops *ops = t->device->ops;
    bool same_params = false;
    ops->zero(t->device, grads, t->model->count * sizeof(float));
    ops->zero(t->device, t->tally, sizeof(*t->tally));
    for (int64_t i = 0; i < t->sampler.accumulate; i++) {
        struct model_batch b;
        bool last = i + 1 == t->sampler.accumulate;
        if (batch_next(t, i, &b, e))
            return e->code;
        b.same_params = same_params;
        train(g, grads, &b, last ? told : NULL);
        same_params |= b.rows > 0;
        if (!last)
            batch_stage(t, &t->cursor, i + 1);
    }
    return ERR_OK;
}

/* Alone, with a device that can record, nothing is told: there is nobody to hear it. */
static enum err_code compute_one(struct going_back *g, struct err *e)
{
    struct trainer *t = g->t;
    bool tells = t->world_size > 1 || !t->device->ops->record;
    put_tail(t, sync_carrier(t->sync), g->s->tail);
    if (compute(g, t->grads, tells ? ready : NULL, e))
        return e->code;
    if (!g->told)
        put_loss(g);
    return ERR_OK;
}

/* A rank with several shards adds them up as a full binary tree over its own: whenever two sums of as many
 * shards are there, they become one. Sum number l waits in spare l, of 2^l shards; the last shard goes to
 * t->grads, where the tree ends. The tail is part of it: votes in the last shard, each shard's loss in its
 * own. */
static enum err_code compute_shards(struct going_back *g, struct err *e)
{
    static const float no_votes[TAIL_USED];
    struct trainer *t = g->t;
    const struct device_ops *ops = t->device->ops;
    size_t whole = t->model->count + TAIL_FLOATS;
    BUG_ON(sync_carrier(t->sync) != t->grads); /* several shards: reproducible: world, which wants that */
    for (int j = 0; j < t->shards; j++) {
        bool last = j + 1 == t->shards;
        int level = 0;
        while (j >> level & 1)
            level++;
        float *sum = last ? t->grads : t->spare[level];
        trainer_take_shard(t, j);
        put_tail(t, sum, last ? g->s->tail : no_votes);
        if (compute(g, sum, NULL, e))
            return e->code;
        ops->tally_mean(t->device, tail_of(t, sum) + TAIL_LOSS, t->tally, (double)g->divisor);
        for (int l = 0; l < level; l++)
            ops->add(t->device, sum, t->spare[l], whole);
    }
    ops->copy(t->device, &t->outcome->loss, tail_of(t, t->grads) + TAIL_LOSS, sizeof(float));
    return ERR_OK;
}

static enum err_code backward(struct trainer *t, struct step *s, struct err *e)
{
    struct going_back g = {t, s, sync_divisor(t->sync, s->local, s->global), false};
    if (t->shards > 1 ? compute_shards(&g, e) : compute_one(&g, e))
        return e->code;
    int64_t began = clock_mono_ns();
    enum err_code code = sync_before_step(t->sync, e);
    t->interval.exposed_ns += clock_mono_ns() - began;
    return code;
}

/* ---- the update, and what came of it */

/* What a cosmic ray does, on purpose. */
static void flip_a_bit(struct trainer *t)
{
    uint32_t word;
    float *at = t->params + t->model->tensors[0].offset;
    t->device->ops->download(t->device, &word, at, sizeof(word));
    word ^= 1;
    t->device->ops->upload(t->device, at, &word, sizeof(word));
}

/* A loss that is not a number is the fault of the ranks that computed it; the others end as a consequence. So
 * is one that is no longer a number in the sum over ranks. */
static enum err_code check_loss(const struct trainer *t, float mine, float all, struct err *e)
{
    mine *= (float)t->world_size;
    if (!isfinite(mine))
        return err_set(e, ERR_OUT_OF_RANGE,
                       "loss is %s at step %lld on rank %d, lower the learning rate or set clip",
                       isnan(mine) ? "nan" : "inf", (long long)t->step + 1, t->rank);
    if (!isfinite(all))
        return err_set(e, ERR_ABORTED, "loss is nan at step %lld on another rank", (long long)t->step + 1);
    return ERR_OK;
}

/* Meanwhile the next step's samples are gathered. */
static void stage_next(struct trainer *t)
{
    struct cursor next = t->cursor;
    trainer_take_shard(t, 0);
    sampler_advance(&t->sampler, &next);
    batch_stage(t, &next, 0);
}

/* Until the device is through; leaves in s->tail what all ranks agree on. Where only a round's end brings
 * agreement, nobody votes in the steps before it, and the loss of a step is this rank's. */
static enum err_code end_step(struct trainer *t, struct step *s, bool measured, struct err *e)
{
    const struct device_ops *ops = t->device->ops;
    bool voted = sync_voted(t->sync);
    struct outcome outcome;
    if (voted)
        ops->copy(t->device, t->outcome->tail, tail_of(t, sync_carrier(t->sync)), sizeof(outcome.tail));
    stage_next(t);
    ops->download(t->device, &outcome, t->outcome, sizeof(outcome));
    if (measured)
        t->grad_norm = optim_norm(t->optim);
    if (ops->wait(t->device, e))
        return e->code;
    memset(s->tail, 0, sizeof(s->tail));
    if (voted)
        memcpy(s->tail, outcome.tail, sizeof(outcome.tail));
    t->loss = (double)(sync_votes_each_step(t->sync) ? s->tail[TAIL_LOSS] : outcome.loss);
    return check_loss(t, outcome.loss, s->tail[TAIL_LOSS], e);
}

static void begin_step(struct trainer *t, struct step *s)
{
    *s = (struct step){.global = sampler_global_samples(&t->sampler, &t->cursor)};
    for (int j = 0; j < t->shards; j++) {
        trainer_take_shard(t, j);
        s->local += sampler_local_samples(&t->sampler, &t->cursor);
    }
    s->tail[TAIL_STOP] = link_stop_asked(t->link);
    s->tail[TAIL_SIGNAL] = (float)trainer_stop_signal;
    s->tail[TAIL_SNAPSHOT] = time_vote(t, &t->spec->snapshot.every, t->last_snapshot_ms);
    s->tail[TAIL_EVAL] = time_vote(t, &t->spec->eval.every, t->last_eval_ms);
}

enum err_code trainer_step(struct trainer *t, struct step *s, struct err *e)
{
    bool measure = t->optim->clip > 0.0 || (t->step + 1) % t->spec->log_every == 0;
    begin_step(t, s);
    if (backward(t, s, e))
        return e->code;
    t->lr = schedule_lr(t->spec, t->step, trainer_run_progress(t));
    optim_update(t->optim, t->params, t->grads, t->lr, measure);
    if (fault_hit("trainer.flip"))
        flip_a_bit(t);
    if (sync_after_step(t->sync, s->local, s->global, e))
        return e->code;
    return end_step(t, s, measure, e);
}
