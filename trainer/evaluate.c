#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/trainer.h"

struct counts {
    double loss, correct, samples;
};

/* A shard's part: samples shard, shard + shards, ..., in micro-batches as large as those of training. */
static enum err_code evaluate_part(struct trainer *t, struct counts *out, struct err *e)
{
    const struct device_ops *ops = t->device->ops;
    struct device_tally tally = {0};
    int64_t rows = sampler_max_rows(&t->sampler), next = t->sampler.rank, seen = 0;
    int64_t most = t->spec->eval.batches ? t->spec->eval.batches : INT64_MAX;
    ops->zero(t->device, t->tally, sizeof(*t->tally));
    for (int64_t batch = 0; batch < most && next < t->test->count; batch++) {
        struct model_batch b;
        int64_t count = 0;
        for (; count < rows && next < t->test->count; next += t->sampler.world_size)
            t->index[count++] = next;
        if (batch_load(t, t->test, count, &b, e))
            return e->code;
        b.same_params = seen > 0;
        model_evaluate(t->model, t->params, &b, t->tally);
        seen += count;
    }
    ops->download(t->device, &tally, t->tally, sizeof(tally));
    *out = (struct counts){tally.loss, tally.correct, (double)seen};
    return ops->wait(t->device, e);
}

static enum err_code evaluate_shards(struct trainer *t, struct counts *mine, struct counts *all,
                                     struct err *e)
{
    for (int j = 0; j < t->shards; j++) {
        trainer_take_shard(t, j);
        if (evaluate_part(t, &mine[j], e))
            return e->code;
    }
    return coll_allgather(t->group, mine, (size_t)t->shards * sizeof(*mine), all, e);
}

enum err_code trainer_evaluate(struct trainer *t, struct err *e)
{
    struct counts sum = {0};
    if (sync_join(t->sync, e))
        return e->code;
    struct counts *all = xcalloc((size_t)(t->sampler.world_size + t->shards), sizeof(*all));
    int64_t began = clock_mono_ns();
    enum err_code code = evaluate_shards(t, all + t->sampler.world_size, all, e);
    for (int s = 0; !code && s < t->sampler.world_size; s++) {
        sum.loss += all[s].loss;
        sum.correct += all[s].correct;
        sum.samples += all[s].samples;
    }
    free(all);
    if (code)
        return code;
    if (!isfinite(sum.loss))
        return err_set(e, ERR_OUT_OF_RANGE,
                       "validation loss is %s after step %lld, lower the learning rate or set clip",
                       isnan(sum.loss) ? "nan" : "inf", (long long)t->step);
    t->val_loss = sum.loss / sum.samples;
    t->val_acc = sum.correct / sum.samples;
    t->val_step = t->step;
    if (!(t->val_loss >= t->best_loss)) {
        t->best_loss = t->val_loss;
        t->best_step = t->step;
    }
    t->interval.since_ns += clock_mono_ns() - began; /* not part of a step */
    t->last_eval_ms = clock_boot_ms();
    return ERR_OK;
}
