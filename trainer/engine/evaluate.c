#include "trainer/engine/evaluate.h"

#include <math.h>

#include "trainer/engine/micro_batch.h"

/* Evaluates the samples shard, shard + shards, ..., in micro-batches as large as those of training. */
static enum err_code evaluate_shard(struct engine *n, const float *params, struct evaluate_counts *out,
                                    struct err *e)
{
    const struct device_ops *ops = n->device->ops;
    struct device_tally tally = {0};
    int64_t next = n->sampler.rank, seen = 0;
    int64_t most = n->spec->eval.batches ? n->spec->eval.batches : INT64_MAX;
    ops->zero(n->device, n->tally, sizeof(*n->tally));
    for (int64_t batch = 0; batch < most && next < n->test->count; batch++) {
        struct model_batch b;
        int64_t count = 0;
        for (; count < n->rows && next < n->test->count; next += n->sampler.world_size)
            n->index[count++] = next;
        if (micro_batch_load(n, n->test, count, &b, e))
            return e->code;
        b.same_params = seen > 0;
        model_evaluate(n->model, params, &b, n->tally);
        seen += count;
    }
    ops->download(n->device, &tally, n->tally, sizeof(tally));
    *out = (struct evaluate_counts){tally.loss, tally.correct, (double)seen};
    return ops->wait(n->device, e);
}

enum err_code evaluate_shards(struct engine *n, const float *params, struct evaluate_counts *out,
                              struct err *e)
{
    BUG_ON(n->partial || n->await);
    n->narrowed &= params == n->params.data; /* evaluating rounds these parameters for the model's products */
    for (int j = 0; j < n->shards; j++) {
        engine_take_shard(n, j);
        if (evaluate_shard(n, params, &out[j], e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code evaluate_take(struct engine *n, const struct evaluate_counts *all, int count, struct err *e)
{
    struct evaluate_counts sum = {0};
    for (int s = 0; s < count; s++) {
        sum.loss += all[s].loss;
        sum.correct += all[s].correct;
        sum.samples += all[s].samples;
    }
    if (!isfinite(sum.loss))
        return err_set(e, ERR_OUT_OF_RANGE,
                       "validation loss is %s after step %lld: lower the learning rate or set clip",
                       isnan(sum.loss) ? "nan" : "inf", (long long)n->step);
    n->val_loss = sum.loss / sum.samples;
    n->val_acc = sum.correct / sum.samples;
    n->val_step = n->step;
    if (!(n->val_loss >= n->best_loss)) { /* also true for the first evaluation, when best_loss is NaN */
        n->best_loss = n->val_loss;
        n->best_step = n->step;
    }
    return ERR_OK;
}
