/* The training loop. A step: load, forward, backward (sums over samples divided by sync_divisor), sync, clip,
 * update, sync again; then whatever is due. What ranks must agree on travels in the tail of the arrays
 * (trainer.h). */
#include <math.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/optim/schedule.h"
#include "trainer/trainer.h"

volatile int trainer_stop_signal, trainer_running;

void trainer_load(struct trainer *t, const struct dataset *d, int64_t rows, struct model_batch *out)
{
    const struct device_ops *ops = t->device->ops;
    dataset_gather(d, t->index, rows, t->host_x, t->host_y, t->host_label);
    if (!t->device->host) {
        ops->upload(t->device, t->x, t->host_x, (size_t)(rows * d->in) * sizeof(float));
        if (d->loss == LOSS_CROSS_ENTROPY)
            ops->upload(t->device, t->label, t->host_label, (size_t)rows * sizeof(int32_t));
        else
            ops->upload(t->device, t->y, t->host_y, (size_t)(rows * d->out) * sizeof(float));
    }
    *out = (struct model_batch){.x = t->x, .y = t->y, .label = t->label, .rows = rows};
}

/* ---- what is due */

static bool due(const struct job_every *every, const struct trainer *t, bool epoch_ended, bool time_voted)
{
    if (every->count <= 0)
        return false;
    switch (every->unit) {
    case EVERY_STEPS:
        return t->step % every->count == 0;
    case EVERY_EPOCHS:
        return epoch_ended && t->cursor.epoch % every->count == 0;
    case EVERY_MS:
        break;
    }
    return time_voted;
}

/* Rank 0's clock decides, so that all ranks do the same. */
static float time_vote(const struct trainer *t, const struct job_every *every, int64_t last_ms)
{
    return t->rank == 0 && every->unit == EVERY_MS && every->count > 0 &&
           clock_boot_ms() - last_ms >= every->count;
}

static bool finished(const struct trainer *t)
{
    return t->spec->steps ? t->step >= t->spec->steps : t->cursor.epoch >= t->spec->epochs;
}

static double run_progress(const struct trainer *t)
{
    if (t->spec->steps)
        return (double)t->step / (double)t->spec->steps;
    double epoch = (double)t->cursor.epoch + (double)t->cursor.position / (double)t->sampler.samples;
    return epoch / (double)t->spec->epochs;
}

/* ---- one step */

struct step {
    int64_t local, global; /* samples */
    float tail[TAIL_FLOATS];
};

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

/* The first piece that is final ends where the tail begins: the loss is known by then, so the tail goes with
 * it. */
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
    sync_grads_ready(t->sync, offset, count);
}

/* All micro-batches; gradients are final in the last. */
static enum err_code backward(struct trainer *t, struct step *s, struct err *e)
{
    const struct device_ops *ops = t->device->ops;
    struct going_back g = {t, s, sync_divisor(t->sync, s->local, s->global)};
    ops->zero(t->device, t->grads, t->model->count * sizeof(float));
    ops->zero(t->device, t->tally, sizeof(*t->tally));
    for (int64_t i = 0; i < t->sampler.accumulate; i++) {
        struct sampler_batch part;
        struct model_batch b;
        bool last = i + 1 == t->sampler.accumulate;
        sampler_batch(&t->sampler, &t->cursor, i, &part);
        sampler_indices(&t->sampler, &t->cursor, &part, t->index);
        trainer_load(t, t->train, part.count, &b);
        model_train(t->model, t->params, t->grads, &b, 1.0f / (float)g.divisor, t->tally, last ? ready : NULL,
                    &g);
    }
    if (t->device->ops->wait(t->device, e))
        return e->code;
    return sync_before_step(t->sync, e);
}

/* A loss that is not a number is the fault of the ranks that computed it; the others end as a consequence. */
static enum err_code check_loss(struct trainer *t, const struct step *s, struct err *e)
{
    if (!isfinite(s->tail[TAIL_LOSS]))
        return err_set(e, ERR_OUT_OF_RANGE,
                       "loss is %s at step %lld on rank %d, lower the learning rate or set clip",
                       isnan(s->tail[TAIL_LOSS]) ? "nan" : "inf", (long long)t->step + 1, t->rank);
    if (!isfinite(t->loss))
        return err_set(e, ERR_ABORTED, "loss is nan at step %lld on another rank", (long long)t->step + 1);
    return ERR_OK;
}

static void update(struct trainer *t, bool report_due)
{
    double scale = 1.0;
    t->lr = schedule_lr(t->spec, t->step, run_progress(t));
    if (t->optim->clip > 0.0 || report_due) {
        t->grad_norm = optim_norm(t->optim, t->grads);
        scale = optim_clip_scale(t->optim, t->grad_norm);
    }
    optim_update(t->optim, t->params, t->grads, t->lr, scale);
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

static enum err_code one_step(struct trainer *t, struct step *s, struct err *e)
{
    bool all_reduce = t->spec->sync.type == SYNC_ALLREDUCE;
    *s = (struct step){.local = sampler_local_samples(&t->sampler, &t->cursor),
                       .global = sampler_global_samples(&t->sampler, &t->cursor)};
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
    if (sync_after_step(t->sync, s->local, s->global, e))
        return e->code;
    read_votes(t, s, all_reduce);
    return t->device->ops->wait(t->device, e);
}

/* ---- the run */

static bool must_stop(const struct step *s)
{
    return s->tail[TAIL_STOP] > 0.0f || s->tail[TAIL_SIGNAL] > 0.0f;
}

static enum err_code after_step(struct trainer *t, const struct step *s, bool epoch_ended, struct err *e)
{
    bool over = finished(t) || must_stop(s), evaluated = false;
    progress_saved(t);
    if (over)
        return ERR_OK; /* finish() does it all */
    if (due(&t->spec->eval.every, t, epoch_ended, s->tail[TAIL_EVAL] > 0.0f)) {
        if (trainer_evaluate(t, e))
            return e->code;
        evaluated = true;
    }
    if (evaluated || t->step % t->spec->log_every == 0)
        progress_report(t, evaluated);
    if (due(&t->spec->snapshot.every, t, epoch_ended, s->tail[TAIL_SNAPSHOT] > 0.0f))
        return trainer_snapshot(t, false, e);
    return ERR_OK;
}

/* What there is: a run that was over when it began has no loss of its own. */
static void log_end(const struct trainer *t, bool stopped)
{
    CLEANUP(buf_release) struct buf numbers = {0};
    buf_printf(&numbers, "step=%lld", (long long)t->step);
    if (!isnan(t->loss))
        buf_printf(&numbers, " loss=%g", t->loss);
    if (!isnan(t->val_loss))
        buf_printf(&numbers, " val_loss=%g", t->val_loss);
    if (!isnan(t->val_acc) && t->train->loss == LOSS_CROSS_ENTROPY)
        buf_printf(&numbers, " val_acc=%g", t->val_acc);
    log_info(stopped ? "stopped" : "finished", "%s", numbers.data);
}

/* The end of the run: what ranks hold becomes one model, judged and kept. A stop only keeps: it must be
 * quick. */
static enum err_code finish(struct trainer *t, bool stopped, struct err *e)
{
    if (!stopped) {
        if (sync_settle(t->sync, e) || trainer_evaluate(t, e))
            return e->code;
    }
    progress_report(t, !stopped);
    if (trainer_snapshot(t, true, e))
        return e->code;
    if (coll_barrier(t->group, e))
        return e->code;
    if (t->rank == 0)
        log_end(t, stopped);
    return ERR_OK;
}

enum err_code trainer_run(struct trainer *t, struct err *e)
{
    bool stopped = false, at_start = true;
    trainer_running = 1;
    if (t->resumed && t->rank == 0)
        progress_resumed(t);
    progress_report(t, false);
    while (!stopped && !finished(t)) {
        struct step s;
        if (at_start)
            progress_epoch(t);
        if (one_step(t, &s, e))
            return e->code;
        t->step++;
        t->samples += s.global;
        t->interval.steps++;
        t->interval.samples += s.global;
        at_start = sampler_advance(&t->sampler, &t->cursor);
        stopped = must_stop(&s);
        t->asked = s.tail[TAIL_STOP] > 0.0f;
        if (after_step(t, &s, at_start, e))
            return e->code;
        if (fault_hit("trainer.step"))
            return err_set(e, ERR_INTERNAL, "fault after step %lld", (long long)t->step);
    }
    t->stopped = stopped && !finished(t);
    return finish(t, t->stopped, e);
}
