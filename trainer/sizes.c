#include "trainer/sizes.h"

#include <stdlib.h>

#include "base/mem.h"
#include "trainer/device/sizing.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/memory.h"
#include "trainer/engine/packed.h"
#include "trainer/member/sync/sync.h"
#include "trainer/model/gpt.h"
#include "trainer/sizes_exchange.h"

#define SAMPLES_MANY ((int64_t)1 << 40) /* more than any step takes, so every step is whole */

static void no_data_free(struct dataset *d)
{
    free(d);
}

/* A data set without samples that fits the model. */
static struct dataset *no_data(const struct train_spec *spec)
{
    static const struct dataset_ops ops = {.free = no_data_free};
    struct dataset *d = xcalloc(1, sizeof(*d));
    const bool gpt = spec->model.type == MODEL_GPT, linear = spec->model.type == MODEL_LINEAR;
    *d = (struct dataset){.ops = &ops, .windows = gpt};
    if (gpt) {
        d->in = spec->model.context;
        d->out = spec->model.vocab;
    } else {
        d->in = linear ? spec->model.in : spec->model.sizes[0];
        d->out = linear ? spec->model.out : spec->model.sizes[spec->model.size_count - 1];
    }
    d->loss = spec->loss;
    if (d->loss == LOSS_AUTO)
        d->loss = gpt || spec->data.type == DATA_IDX ? LOSS_CROSS_ENTROPY : LOSS_MSE;
    return d;
}

static enum err_code sizes_open_data(struct engine *n, struct err *e)
{
    const struct train_spec *spec = n->spec;
    if (spec->model.type != MODEL_GPT || spec->model.vocab) {
        n->train = no_data(spec);
    } else if (dataset_open(&n->train, &n->test, spec, e)) {
        return err_wrap(
            e, "the model's vocabulary is that of the data (set train.model.vocab to plan without it)");
    }
    n->train->count = SAMPLES_MANY;
    return ERR_OK;
}

/* Floats that the update of a parameter reads or writes: parameter and gradient, and each moment twice. */
static double update_floats(const struct optim *o)
{
    return 3.0 + 2.0 * (double)o->whole_floats / (double)o->whole;
}

static double gathered_bytes(const struct engine *n, int world)
{
    const double whole = (double)(n->model->count + TAIL_FLOATS) * sizeof(float);
    const double steps = (double)n->spec->log_every;
    struct packed p;
    if (!packed_open(&p, n, 0, world, NULL, 0))
        return whole;
    const double packed = (double)(p.offsets[world] * sizeof(float));
    packed_release(&p);
    return ((steps - 1) * packed + whole) / steps;
}

static void sizes_take(const struct engine *n, int world, int per_node, bool gpu, struct plan_sizes *out)
{
    const double samples = (double)engine_portion(n, 0, true) * n->shards;
    const size_t strategy = n->extra_count * (n->model->count + TAIL_FLOATS) * sizeof(float);
    struct memory_sizes m;
    memory_take(&m, n, 0, 0);
    const size_t libraries = gpu ? GPT_LIBRARY_BYTES : 0;
    *out = (struct plan_sizes){
        .parameters = (double)n->model->parameters,
        .arrays = (double)(n->model->count + TAIL_FLOATS),
        .rows = (double)n->rows,
        .micro_batches = (double)(n->sampler.accumulate * n->shards),
        .samples = (double)n->sampler.global,
        .tokens = n->train->windows ? (double)n->train->in : 0,
        .flops = model_flops(n->model, 1) * samples,
        .gathered_bytes = gathered_bytes(n, world),
        .gathered_beside = 1.0 - 1.0 / (double)n->spec->log_every,
        .update_floats = update_floats(n->optim),
        .parameter_bytes = (double)m.parameters,
        .gradient_bytes = (double)m.gradients,
        .optimizer_bytes = (double)m.optimizer,
        .activation_bytes = (double)m.activations,
        .batch_bytes = (double)m.batch,
        .data_bytes = gpu ? 0 : (double)m.data,
        .strategy_bytes = (double)strategy,
        .workspace_bytes = (double)(m.workspace - strategy + libraries),
        .sum_bytes = (double)(m.sum - (gpu ? m.program + m.data : 0) + libraries),
    };
    sizes_exchange(n, world, per_node, gpu, out);
}

enum err_code sizes_of_job(const struct train_spec *spec, int world, int per_node, size_t gpu_memory,
                           struct plan_sizes *out, struct err *e)
{
    struct sizing_device sizing;
    struct engine n = {.spec = spec, .program_bytes = memory_resident()};
    struct sync_array arrays[SYNC_MAX_ARRAYS];
    if (sizing_open(&sizing, gpu_memory, spec->threads > 0 ? (int)spec->threads : 1, spec->isa, e))
        return e->code;
    n.device = sizing.device;
    n.extra_count = sync_arrays(&spec->sync, arrays);
    for (size_t i = 0; i < n.extra_count; i++)
        n.extras[i] = (struct engine_extra){arrays[i].name, arrays[i].kept, arrays[i].own};
    enum err_code code = sizes_open_data(&n, e) ? e->code : engine_take_share(&n, 0, world, e);
    if (!code)
        sizes_take(&n, world, per_node, gpu_memory > 0, out);
    engine_close(&n);
    return code;
}
