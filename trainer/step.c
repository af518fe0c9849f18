/* One step: load, forward, backward (sums over samples divided by sync_divisor), sync, clip, update, sync
 * again. What ranks must agree on travels in the tail of the arrays (trainer.h). */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
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

static double local_loss(struct trainer *t)
{
    struct device_tally tally;
    t->device->ops->download(t->device, &tally, t->tally, sizeof(tally));
    return tally.loss;
}

static void put_tail(struct trainer *t, float *array, const float *tail)
{
    t->device->ops->upload(t->device, array + t->model->count, tail, TAIL_USED * sizeof(float));
}

static void get_tail(struct trainer *t, const float *array, float *tail)
{
    t->device->ops->download(t->device, tail, array + t->model->count, TAIL_USED * sizeof(float));
}

/* A rank that computes one shard gives its gradients away as they become final. The first piece ends where
 * the tail begins: the loss is known by then, so the tail goes with it. */
struct going_back {
    struct trainer *t;
    struct step *s;
    int64_t divisor;
};

static void ready(void *arg, size_t offset, size_t count)
{
    struct going_back *g = arg;
    struct trainer *t = g->t;
    if (offset + count == t->model->count) {
        g->s->tail[TAIL_LOSS] = (float)(local_loss(t) / (double)g->divisor);
        put_tail(t, t->grads, g->s->tail);
        put_tail(t, t->params, g->s->tail);
        count += TAIL_FLOATS;
    }
    int64_t began = clock_mono_ns();
    sync_grads_ready(t->sync, offset, count);
    t->interval.exposed_ns += clock_mono_ns() - began;
}

/* Gradients of all micro-batches of the sampler's share into grads; told as they are final in the last. */
static enum err_code compute(struct going_back *g, float *grads, model_ready_fn told, struct err *e)
{
    struct trainer *t = g->t;
    const struct device_ops *ops = t->device->ops;
    ops->zero(t->device, grads, t->model->count * sizeof(float));
    ops->zero(t->device, t->tally, sizeof(*t->tally));
    for (int64_t i = 0; i < t->sampler.accumulate; i++) {
        struct sampler_batch part;
        struct model_batch b;
        bool last = i + 1 == t->sampler.accumulate;
        sampler_batch(&t->sampler, &t->cursor, i, &part);
        sampler_indices(&t->sampler, &t->cursor, &part, t->index);
        if (batch_load(t, t->train, part.count, &b, e))
            return e->code;
        model_train(t->model, t->params, grads, &b, 1.0f / (float)g->divisor, t->tally, last ? told : NULL,
                    g);
    }
    return ops->wait(t->device, e);
}

/* A rank with several shards adds them up as a full binary tree over its own: whenever two sums of as many
 * shards are there, they become one. Sum number l waits in spare l, of 2^l shards; the last shard goes to
 * t->grads, where the tree ends. The tail is part of it: votes in the last shard, each shard's loss in its
 * own. */
static enum err_code compute_shards(struct going_back *g, struct err *e)
{
    struct trainer *t = g->t;
    const struct device_ops *ops = t->device->ops;
    int64_t whole = (int64_t)(t->model->count + TAIL_FLOATS);
    double loss = 0.0;
    for (int j = 0; j < t->shards; j++) {
        bool last = j + 1 == t->shards;
        int level = 0;
        while (j >> level & 1)
            level++;
        float *sum = last ? t->grads : t->spare[level], tail[TAIL_FLOATS] = {0};
        trainer_take_shard(t, j);
        if (compute(g, sum, NULL, e))
            return e->code;
        if (last)
            memcpy(tail, g->s->tail, sizeof(tail));
        tail[TAIL_LOSS] = (float)(local_loss(t) / (double)g->divisor);
        loss += (double)tail[TAIL_LOSS];
        put_tail(t, sum, tail);
        for (int l = 0; l < level; l++)
            ops->bias(t->device, sum, t->spare[l], 1, whole); /* sum += spare */
    }
    g->s->tail[TAIL_LOSS] = (float)loss;
    return ops->wait(t->device, e);
}

static enum err_code backward(struct trainer *t, struct step *s, struct err *e)
{
    struct going_back g = {t, s, sync_divisor(t->sync, s->local, s->global)};
    if (t->shards > 1 ? compute_shards(&g, e) : compute(&g, t->grads, ready, e))
        return e->code;
    int64_t began = clock_mono_ns();
    enum err_code code = sync_before_step(t->sync, e);
    t->interval.exposed_ns += clock_mono_ns() - began;
    return code;
}

/* A loss that is not a number is the fault of the ranks that computed it; the others end as a consequence. So
 * is one that is no longer a number in the sum over ranks. */
static enum err_code check_loss(struct trainer *t, const struct step *s, struct err *e)
{
    float mine = s->tail[TAIL_LOSS] * (float)t->world_size;
    if (!isfinite(mine))
        return err_set(e, ERR_OUT_OF_RANGE,
                       "loss is %s at step %lld on rank %d, lower the learning rate or set clip",
                       isnan(mine) ? "nan" : "inf", (long long)t->step + 1, t->rank);
    if (!isfinite(t->loss))
        return err_set(e, ERR_ABORTED, "loss is nan at step %lld on another rank", (long long)t->step + 1);
    return ERR_OK;
}

static void update(struct trainer *t, bool report_due)
{
    double scale = 1.0;
    t->lr = schedule_lr(t->spec, t->step, trainer_run_progress(t));
    if (t->optim->clip > 0.0 || report_due) {
        t->grad_norm = optim_norm(t->optim, t->grads);
        scale = optim_clip_scale(t->optim, t->grad_norm);
    }
    optim_update(t->optim, t->params, t->grads, t->lr, scale);
}

/* What a cosmic ray does, on purpose. */
static void flip_a_bit(struct trainer *t)
{
    uint32_t word;
    float *at = t->params + t->model->tensors[0].offset;
    t->device->ops->download(t->device, &word, at, sizeof(word));
    word ^= 1;
    t->device->ops->upload(t->device, at, &word, sizeof(word));
}

/* Leaves in s->tail what all ranks agree on; with averaging only a round's end brings agreement. */
static void read_votes(struct trainer *t, struct step *s, bool all_reduce)
{
    if (all_reduce)
        return;
    if (sync_settled(t->sync))
        get_tail(t, t->params, s->tail);
    else
        *s = (struct step){.local = s->local, .global = s->global};
}

enum err_code trainer_step(struct trainer *t, struct step *s, struct err *e)
{
    bool all_reduce = t->spec->sync.type == SYNC_ALLREDUCE;
    *s = (struct step){.global = sampler_global_samples(&t->sampler, &t->cursor)};
    for (int j = 0; j < t->shards; j++) {
        trainer_take_shard(t, j);
        s->local += sampler_local_samples(&t->sampler, &t->cursor);
    }
    s->tail[TAIL_STOP] = report_stop_asked(t->report);
    s->tail[TAIL_SIGNAL] = (float)trainer_stop_signal;
    s->tail[TAIL_SNAPSHOT] = time_vote(t, &t->spec->snapshot.every, t->last_snapshot_ms);
    s->tail[TAIL_EVAL] = time_vote(t, &t->spec->eval.every, t->last_eval_ms);
    if (backward(t, s, e))
        return e->code;
    struct step mine = *s;
    if (all_reduce)
        get_tail(t, t->grads, s->tail);
    t->loss = (double)s->tail[TAIL_LOSS];
    if (check_loss(t, &mine, e))
        return e->code;
    update(t, (t->step + 1) % t->spec->log_every == 0);
    if (fault_hit("trainer.flip"))
        flip_a_bit(t);
    if (sync_after_step(t->sync, s->local, s->global, e))
        return e->code;
    read_votes(t, s, all_reduce);
    return t->device->ops->wait(t->device, e);
}
