#include "trainer/engine/step.h"

#include <math.h>
#include <string.h>

#include "base/digest.h"
#include "base/fault.h"
#include "base/log.h"
#include "trainer/engine/micro_batch.h"
#include "trainer/engine/share.h"
#include "trainer/optim/schedule.h"

static float *tail_of(const struct engine *n, float *array)
{
    return array + n->model->count;
}

static void tail_put(struct engine *n, float *array, const float *tail)
{
    n->device->ops->upload(n->device, tail_of(n, array), tail, TAIL_USED * sizeof(float));
}

void step_begin(struct engine *n, struct step *s)
{
    const struct engine_share *share = &n->share;
    if (share->given) {
        int64_t left = share->most - share->taken;
        *s = (struct step){.local = left < share->batch ? left : share->batch, .measured = true};
        return;
    }
    *s = (struct step){.global = sampler_global_samples(&n->sampler, &n->cursor)};
    for (int j = 0; j < n->shards; j++) {
        engine_take_shard(n, j);
        s->local += sampler_local_samples(&n->sampler, &n->cursor);
    }
    s->measured = n->optim->clip > 0.0 || (n->step + 1) % n->spec->log_every == 0;
}

/* ---- backward */

/* A rank that computes one shard reports its gradients as they become final. The first piece ends where the
 * tail begins. The loss is known by then, so the tail is reported with it. */
struct backward {
    struct engine *n;
    const struct step *step;
    const struct step_route *route;
    bool same_params; /* see model_batch */
    bool loss_put;
};

/* Copies this rank's loss from the tally to the tail of the array that carries it to the other ranks. */
static void loss_to_carrier(struct backward *b)
{
    struct engine *n = b->n;
    const struct device_ops *ops = n->device->ops;
    float *loss = tail_of(n, b->route->carrier) + TAIL_LOSS;
    ops->tally_mean(n->device, loss, n->tally, (double)b->route->divisor);
    ops->copy(n->device, &n->outcome->loss, loss, sizeof(*loss));
    b->loss_put = true;
}

static void route_ready(void *arg, size_t offset, size_t count)
{
    struct backward *b = arg;
    if (offset + count == b->n->model->count) {
        loss_to_carrier(b);
        count += TAIL_FLOATS;
    }
    b->route->ready(b->route->arg, offset, count);
}

/* Returns the key of a micro-batch: the same key means the same work for the device. 0: the device cannot
 * record it. */
static uint64_t recording_key(const struct backward *b, const float *grads, const struct model_batch *batch)
{
    const struct engine *n = b->n;
    struct {
        const float *params, *grads;
        int64_t rows, divisor, same_params, set_grads, opened;
    } work = {n->params.data,   grads,    batch->rows, b->route->divisor, batch->same_params,
              batch->set_grads, n->opened};
    if (!n->device->ops->record || n->spec->model.dropout > 0.0 || batch->rows == 0)
        return 0;
    uint64_t key = digest64(0, &work, sizeof(work));
    return key ? key : 1;
}

static bool seen_before(struct engine *n, uint64_t key)
{
    for (size_t i = 0; i < ENGINE_SEEN_WORK; i++)
        if (n->seen[i] == key)
            return true;
    n->seen[n->seen_count++ % ENGINE_SEEN_WORK] = key;
    return false;
}

/* Work is recorded when it comes up for the second time. So work that comes up only once is not recorded, and
 * the first time has set up everything that is needed. Work during which pieces are reported, or parameters
 * are waited for, is not recorded, nor replaced by what was. */
static void train_micro_batch(struct backward *b, float *grads, const struct model_batch *batch,
                              model_ready_fn ready)
{
    struct engine *n = b->n;
    const struct device_ops *ops = n->device->ops;
    float scale = 1.0f / (float)b->route->divisor;
    uint64_t key = ready || batch->need ? 0 : recording_key(b, grads, batch);
    if (key && ops->replay(n->device, key))
        return;
    bool record = key && !n->plain && seen_before(n, key);
    if (record)
        ops->record(n->device, key);
    model_train(n->model, n->params.data, grads, batch, scale, n->tally, ready, b);
    if (!record || ops->recorded(n->device))
        return;
    /* The device could not record the work, and has not done it. */
    n->plain = true;
    log_warn("not_recorded", "device=%s", LOG_Q(n->device->name));
    model_train(n->model, n->params.data, grads, batch, scale, n->tally, ready, b);
}

/* Sets grads to the gradients of all micro-batches of the sampler's share. In the last micro-batch, reports
 * pieces as they become final. */
static enum err_code shard_backward(struct backward *b, float *grads, model_ready_fn ready, struct err *e)
{
    struct engine *n = b->n;
    const struct device_ops *ops = n->device->ops;
    struct cursor at = engine_position(n, n->share.taken);
    ops->zero(n->device, n->tally, sizeof(*n->tally));
    for (int64_t i = 0; i < sampler_micro_batches(&n->sampler); i++) {
        struct model_batch batch;
        bool last = i + 1 == sampler_micro_batches(&n->sampler);
        if (micro_batch_next(n, i, &batch, e))
            return e->code;
        batch.same_params = b->same_params;
        BUG_ON(n->partial && !b->same_params);
        batch.set_grads = i == 0;
        batch.need = n->await;
        batch.need_arg = n->await_arg;
        train_micro_batch(b, grads, &batch, last ? ready : NULL);
        b->same_params |= batch.rows > 0;
        if (!last)
            micro_batch_stage(n, &at, i + 1);
    }
    return ERR_OK;
}

/* A rank with several shards adds up their gradients as a full binary tree: whenever two sums of the same
 * number of shards exist, they are added. Spare number l holds a waiting sum of 2^l shards. The last shard is
 * computed in the gradients, where the tree ends. The tail belongs to the sums: the votes are in the last
 * shard's tail, each shard's loss in its own. */
static enum err_code shards_backward(struct backward *b, struct err *e)
{
    static const float no_votes[TAIL_USED];
    struct engine *n = b->n;
    const struct device_ops *ops = n->device->ops;
    float *grads = n->grads.data;
    size_t whole = n->model->count + TAIL_FLOATS;
    /* With several shards (reproducible: world) the carrier is the gradients. */
    BUG_ON(b->route->carrier != grads);
    for (int j = 0; j < n->shards; j++) {
        bool last = j + 1 == n->shards;
        int level = 0;
        while (j >> level & 1)
            level++;
        float *sum = last ? grads : n->spare[level];
        engine_take_shard(n, j);
        tail_put(n, sum, last ? b->step->tail : no_votes);
        if (shard_backward(b, sum, NULL, e))
            return e->code;
        ops->tally_mean(n->device, tail_of(n, sum) + TAIL_LOSS, n->tally, (double)b->route->divisor);
        for (int l = 0; l < level; l++)
            ops->add(n->device, sum, n->spare[l], whole);
    }
    ops->copy(n->device, &n->outcome->loss, tail_of(n, grads) + TAIL_LOSS, sizeof(float));
    return ERR_OK;
}

enum err_code step_backward(struct engine *n, const struct step *s, const struct step_route *route,
                            struct err *e)
{
    struct backward b = {n, s, route, n->narrowed, false};
    n->narrowed = false;
    if (n->shards > 1)
        return shards_backward(&b, e);
    tail_put(n, route->carrier, s->tail);
    if (shard_backward(&b, n->grads.data, route->ready ? route_ready : NULL, e))
        return e->code;
    if (!b.loss_put)
        loss_to_carrier(&b);
    return ERR_OK;
}

/* ---- the update, and what came of it */

/* Fault injection: flips a bit of the parameters, like a memory error. */
static void flip_a_bit(struct engine *n)
{
    uint32_t word;
    float *at = n->params.data + n->model->tensors[0].offset;
    n->device->ops->download(n->device, &word, at, sizeof(word));
    word ^= 1;
    n->device->ops->upload(n->device, at, &word, sizeof(word));
}

void step_update(struct engine *n, struct step *s, bool narrow)
{
    n->whole = false; /* until the step counts */
    n->lr = schedule_lr(n->spec, (int64_t)engine_steps_made(n), engine_run_progress(n));
    n->narrowed = optim_narrow_to(n->optim, narrow ? n->model->narrowed : NULL);
    optim_update(n->optim, n->params.data, n->grads.data, n->lr, s->measured);
    if (fault_hit("trainer.flip")) {
        flip_a_bit(n);
        n->narrowed =
            optim_narrow_to(n->optim, NULL); /* what the update has narrowed is no longer the same */
    }
}

/* OUT_OF_RANGE on a rank whose own loss is not finite, or would not be if all ranks' losses were as large:
 * such a rank is the cause. ABORTED on the other ranks, which end as a consequence. */
static enum err_code step_check_loss(const struct engine *n, const struct step_agreement *agreed, float mine,
                                     float all, struct err *e)
{
    mine *= (float)agreed->world_size;
    if (!isfinite(mine))
        return err_set(e, ERR_OUT_OF_RANGE,
                       "loss is %s at step %lld on rank %d: lower the learning rate or set clip",
                       isnan(mine) ? "nan" : "inf", (long long)n->step + 1, agreed->rank);
    if (!isfinite(all))
        return err_set(e, ERR_ABORTED, "loss is nan at step %lld on another rank", (long long)n->step + 1);
    return ERR_OK;
}

/* In a round of a given time, the place that ranks share moves when the round is over (share_end). */
static void place_take(struct engine *n, const struct step *s, const struct cursor *next)
{
    n->whole = true;
    if (n->share.given) {
        n->share.taken += s->local;
        return;
    }
    n->cursor = *next;
    n->step++;
    n->samples += s->global;
}

enum err_code step_end(struct engine *n, struct step *s, const struct step_agreement *agreed,
                       bool *epoch_ended, struct err *e)
{
    const struct device_ops *ops = n->device->ops;
    struct engine_outcome outcome;
    struct cursor next = engine_position(n, n->share.taken + s->local);
    if (agreed->voted)
        ops->copy(n->device, n->outcome->tail, agreed->carrier + n->model->count, sizeof(outcome.tail));
    /* The next step's samples are gathered while the device is working. */
    engine_take_shard(n, 0);
    bool ended = !n->share.given && sampler_advance(&n->sampler, &next);
    micro_batch_stage(n, &next, 0);
    ops->download(n->device, &outcome, n->outcome, sizeof(outcome));
    if (s->measured)
        n->grad_norm = optim_norm(n->optim);
    if (ops->wait(n->device, e))
        return e->code;
    n->loss_unread = false;
    memset(s->tail, 0, sizeof(s->tail));
    if (agreed->voted)
        memcpy(s->tail, outcome.tail, sizeof(outcome.tail));
    n->loss = (double)(agreed->all_ranks ? s->tail[TAIL_LOSS] : outcome.loss);
    if (step_check_loss(n, agreed, outcome.loss, s->tail[TAIL_LOSS], e))
        return e->code;
    place_take(n, s, &next);
    *epoch_ended = ended;
    return ERR_OK;
}

void step_count(struct engine *n, const struct step *s)
{
    struct cursor next = n->cursor;
    engine_take_shard(n, 0);
    (void)sampler_advance(&n->sampler, &next);
    place_take(n, s, &next);
    n->loss_unread = true;
}

enum err_code step_settle(struct engine *n, struct err *e)
{
    struct engine_outcome outcome = {0};
    const bool unread = n->loss_unread;
    n->loss_unread = false;
    if (unread)
        n->device->ops->download(n->device, &outcome, n->outcome, sizeof(outcome));
    if (n->device->ops->wait(n->device, e))
        return e->code;
    if (unread)
        n->loss = (double)outcome.loss;
    return ERR_OK;
}
