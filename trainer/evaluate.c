#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/trainer.h"

struct counts {
    double loss, correct, samples;
};

/* This rank's part: samples rank, rank + world, ..., in micro-batches as large as those of training. */
static void evaluate_part(struct trainer *t, struct counts *out)
{
    const struct device_ops *ops = t->device->ops;
    struct device_tally tally = {0};
    int64_t rows = sampler_max_rows(&t->sampler), next = t->rank, seen = 0;
    int64_t most = t->spec->eval.batches ? t->spec->eval.batches : INT64_MAX;
    ops->zero(t->device, t->tally, sizeof(*t->tally));
    for (int64_t batch = 0; batch < most && next < t->test->count; batch++) {
        struct model_batch b;
        int64_t count = 0;
        for (; count < rows && next < t->test->count; next += t->world_size)
            t->index[count++] = next;
        trainer_load(t, t->test, count, &b);
        model_evaluate(t->model, t->params, &b, t->tally);
        seen += count;
    }
    ops->download(t->device, &tally, t->tally, sizeof(tally));
    *out = (struct counts){tally.loss, tally.correct, (double)seen};
}

enum err_code trainer_evaluate(struct trainer *t, struct err *e)
{
    struct counts mine, sum = {0};
    struct counts *all = xcalloc((size_t)t->world_size, sizeof(*all));
    int64_t began = clock_mono_ns();
    evaluate_part(t, &mine);
    enum err_code code = t->device->ops->wait(t->device, e);
    if (!code)
        code = coll_allgather(t->group, &mine, sizeof(mine), all, e);
    for (int r = 0; !code && r < t->world_size; r++) {
        sum.loss += all[r].loss;
        sum.correct += all[r].correct;
        sum.samples += all[r].samples;
    }
    free(all);
    if (code)
        return code;
    t->val_loss = sum.loss / sum.samples;
    t->val_acc = sum.correct / sum.samples;
    t->interval.since_ns += clock_mono_ns() - began; /* not part of a step */
    t->last_eval_ms = clock_boot_ms();
    return ERR_OK;
}
