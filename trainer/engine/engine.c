#include "trainer/engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/engine/choose_device.h"
#include "trainer/engine/describe.h"
#include "trainer/engine/digest.h"
#include "trainer/engine/divide.h"
#include "trainer/engine/memory.h"
#include "trainer/engine/micro_batch.h"
#include "trainer/engine/share.h"

enum err_code engine_open(struct engine *n, const struct engine_config *config, struct err *e)
{
    const struct train_spec *spec = config->spec;
    enum device_type type = spec->precision == PRECISION_BF16 ? DEVICE_BF16 : DEVICE_F32;
    *n = (struct engine){.spec = spec, .extra_count = config->extra_count};
    for (size_t i = 0; i < config->extra_count; i++)
        n->extras[i] = config->extras[i];
    memcpy(n->optional, config->optional, sizeof(n->optional));
    n->loss = n->lr = n->grad_norm = n->val_loss = n->val_acc = n->best_loss = NAN;
    n->val_step = -1;
    if (choose_device(&n->device, config, e))
        return e->code;
    /* The peak is measured for language models only. On a GPU it takes 0.3 s, in which the job would stand still longer
     * after a failure. The memory that is resident afterwards, including the
     * math library, does not depend on the size of the model. */
    bool measured = spec->model.type == MODEL_GPT && !(config->resumes && !n->device->host);
    if (measured && device_peak(n->device, type, &n->peak_flops, e))
        return e->code;
    n->program_bytes = memory_resident();
    return dataset_open(&n->train, &n->test, spec, e);
}

/* ---- the share of the samples */

void engine_take_shard(struct engine *n, int j)
{
    n->sampler.rank = n->first_shard + j;
}

void engine_leave_spent_epoch(struct engine *n)
{
    if (sampler_steps_left(&n->sampler, &n->cursor) == 0)
        n->cursor = (struct cursor){n->cursor.epoch + 1, 0};
}

static enum err_code open_sampler(struct engine *n, int rank, int world_size, struct err *e)
{
    const struct train_spec *s = n->spec;
    bool world = s->reproducible == REPRODUCIBLE_WORLD;
    int64_t accumulate = s->accumulate > 0 ? s->accumulate : 1;
    if (world && s->shards % world_size)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "reproducible: world with %lld shards needs a world size that divides the number of "
                       "shards, got %d",
                       (long long)s->shards, world_size);
    n->shards = world ? (int)s->shards / world_size : 1;
    n->first_shard = rank * n->shards;
    n->sampler = (struct sampler){
        .samples = n->train->count,
        .global = s->global_batch ? s->global_batch : s->batch * world_size * accumulate,
        .accumulate = accumulate,
        .seed = (uint64_t)s->seed,
        .shuffle = s->data.shuffle,
        .pad = s->data.pad,
        .world_size = world_size * n->shards,
        .bounds = n->bounds_world == world_size ? n->bounds : NULL,
    };
    engine_take_shard(n, 0);
    n->staged.rows = -1; /* the staged micro-batch was gathered for another share */
    return ERR_OK;
}

void engine_take_portions(struct engine *n, const int64_t *portions)
{
    int world = n->sampler.world_size;
    free(n->bounds);
    n->bounds = NULL;
    n->sampler.bounds = NULL;
    n->bounds_world = 0;
    n->staged.rows = -1; /* the staged micro-batch was gathered for another portion */
    if (!portions)
        return;
    n->bounds = xcalloc((size_t)world + 1, sizeof(*n->bounds));
    for (int r = 0; r < world; r++)
        n->bounds[r + 1] = n->bounds[r] + portions[r];
    BUG_ON(n->bounds[world] != n->sampler.global);
    n->bounds_world = world;
    n->sampler.bounds = n->bounds;
}

int64_t engine_portion(const struct engine *n, int rank, bool equal)
{
    struct sampler s = n->sampler;
    const struct cursor start = {0, 0};
    if (s.samples < s.global)
        s.samples = s.global; /* a whole step, although no epoch has one */
    if (equal)
        s.bounds = NULL;
    s.rank = rank;
    return sampler_local_samples(&s, &start);
}

static void close_spares(struct engine *n)
{
    for (int l = 0; l < n->spare_count; l++)
        n->device->ops->free(n->device, n->spare[l]);
    free(n->spare);
    n->spare = NULL;
    n->spare_count = 0;
    n->spare_bytes = 0;
}

/* Allocates the partial sums of 1, 2, 4, ... shards that wait for others; the number of shards is a power of
 * two. */
static enum err_code open_spares(struct engine *n, struct err *e)
{
    size_t bytes = (n->model->count + TAIL_FLOATS) * sizeof(float);
    int count = 0;
    while (1 << count < n->shards)
        count++;
    if (n->spare && count == n->spare_count)
        return ERR_OK;
    close_spares(n);
    n->spare = xcalloc((size_t)count + 1, sizeof(*n->spare));
    const size_t before = n->device->bytes;
    while (n->spare_count < count) {
        void *memory = NULL;
        if (device_alloc(n->device, bytes, "gradients of a shard", &memory, e))
            return e->code;
        n->spare[n->spare_count++] = memory;
    }
    n->spare_bytes = n->device->bytes - before;
    return ERR_OK;
}

double engine_arrays(const struct engine *n, double moments)
{
    return 2.0 + moments + (double)n->extra_count;
}

/* Besides parameters, gradients and two moments. The activations that are chosen for the memory that is left decide the lowest
 * bits, so with `reproducible: world` parts of moments count as whole ones. So do those of muon, whose parts are unequal. */
static double extra_arrays(const struct engine *n, int world_size)
{
    const bool divided = n->spec->shard == SHARD_OPTIMIZER && n->spec->optimizer.type != OPTIMIZER_MUON &&
                         n->spec->reproducible != REPRODUCIBLE_WORLD;
    return engine_arrays(n, divided ? 2.0 / world_size : 2.0) - 4.0;
}

/* Opens the model and the micro-batch for the largest micro-batch of this share. Parameters and gradients
 * are not part of this memory and keep their values. */
static enum err_code open_rows(struct engine *n, int world_size, struct err *e)
{
    int64_t rows = sampler_max_rows(&n->sampler);
    const double arrays = extra_arrays(n, world_size);
    if (n->model && rows == n->rows && arrays == n->planned_arrays)
        return ERR_OK;
    n->planned_arrays = arrays;
    micro_batch_close(n);
    model_free(n->model);
    n->model = NULL;
    n->rows = rows;
    n->opened++;
    n->narrowed = false;
    if (model_open(&n->model, n->spec, n->train->loss, n->train->in, n->train->out, rows, arrays, n->device,
                   e) ||
        micro_batch_open(n, rows, e))
        return e->code;
    describe_layout(n);
    return ERR_OK;
}

bool engine_divide(const struct engine *n, int world_size, size_t *offsets)
{
    struct divide d;
    divide_open(&d, n->model, n->spec, world_size);
    for (int r = 0; r <= world_size; r++)
        offsets[r] = d.blocks[d.first[r]];
    divide_release(&d);
    return n->spec->shard == SHARD_OPTIMIZER;
}

/* ---- what is made once, when the model's size is known */

static enum err_code open_arrays(struct engine *n, struct err *e)
{
    size_t count = n->model->count + TAIL_FLOATS;
    if (device_array_open(&n->params, n->device, count, e))
        return err_wrap(e, "parameters");
    if (device_array_open(&n->grads, n->device, count, e))
        return err_wrap(e, "gradients");
    for (size_t i = 0; i < n->extra_count; i++)
        if (device_array_open(&n->extra[i], n->device, count, e))
            return err_wrap(e, "%s", n->extras[i].name);
    return ERR_OK;
}

static void take_part(struct engine *n, int rank, int world_size)
{
    struct divide d;
    divide_open(&d, n->model, n->spec, world_size);
    optim_take_part(n->optim, d.blocks + d.first[rank], d.first[rank + 1] - d.first[rank]);
    divide_release(&d);
}

static enum err_code open_optim(struct engine *n, int rank, int world_size, struct err *e)
{
    optim_open(&n->optim, n->spec, n->model->count, n->device);
    for (size_t i = 0; i < n->model->tensor_count; i++) { /* tensors are in rising order */
        const struct model_tensor *t = &n->model->tensors[i];
        if (t->matrices > 0)
            optim_matrix(n->optim, t->offset, t->shape[0], t->shape[1], t->matrices, t->out_first);
        else if (!t->decay)
            optim_exempt(n->optim, t->offset, t->count);
    }
    if (n->spec->shard == SHARD_OPTIMIZER)
        take_part(n, rank, world_size);
    return optim_alloc(n->optim, e);
}

/* If the rank now has another part of the optimizer, the part is opened without moments: the caller must fill them in. The number
 * of updates stays, because it belongs to the parameters. */
static enum err_code open_optim_again(struct engine *n, int rank, int world_size, struct err *e)
{
    size_t *offsets = xcalloc((size_t)world_size + 1, sizeof(*offsets));
    const bool divided = engine_divide(n, world_size, offsets);
    const size_t first = divided ? offsets[rank] : 0, end = divided ? offsets[rank + 1] : n->model->count;
    free(offsets);
    if (n->optim->part == divided && n->optim->first == first && n->optim->count == end - first)
        return ERR_OK;
    const int64_t steps = n->optim->steps;
    optim_free(n->optim);
    n->optim = NULL;
    if (open_optim(n, rank, world_size, e))
        return e->code;
    n->optim->steps = steps;
    return ERR_OK;
}

static enum err_code open_state(struct engine *n, int rank, int world_size, struct err *e)
{
    if (open_optim(n, rank, world_size, e) || digest_open(n, e))
        return e->code;
    describe_kept(n);
    return open_arrays(n, e);
}

enum err_code engine_take_share(struct engine *n, int rank, int world_size, struct err *e)
{
    if (open_sampler(n, rank, world_size, e) || open_rows(n, world_size, e))
        return e->code;
    if (n->optim ? open_optim_again(n, rank, world_size, e) : open_state(n, rank, world_size, e))
        return e->code;
    engine_leave_spent_epoch(n);
    return open_spares(n, e);
}

void engine_close(struct engine *n)
{
    buf_release(&n->config_json);
    buf_release(&n->vocab_json);
    buf_release(&n->algorithms);
    free(n->tensors);
    free(n->places);
    free(n->share.limits);
    free(n->bounds);
    deal_release(&n->deal);
    if (n->device) {
        for (size_t i = 0; i < n->extra_count; i++)
            device_array_close(&n->extra[i]);
        device_array_close(&n->grads);
        device_array_close(&n->params);
        digest_close(n);
        optim_free(n->optim);
        micro_batch_close(n);
        close_spares(n);
        model_free(n->model);
    }
    dataset_free(n->train);
    dataset_free(n->test);
    device_close(n->device);
}

/* ---- the place in the run */

struct cursor engine_position(const struct engine *n, int64_t taken)
{
    return n->share.given ? (struct cursor){-1, taken} : n->cursor;
}

void engine_look_ahead(struct engine *n, int64_t steps, struct engine_ahead *out)
{
    *out = (struct engine_ahead){.cursor = n->cursor};
    for (; steps > 0; steps--) {
        for (int j = 0; j < n->shards; j++) {
            engine_take_shard(n, j);
            out->local += sampler_local_samples(&n->sampler, &out->cursor);
        }
        out->global += sampler_global_samples(&n->sampler, &out->cursor);
        (void)sampler_advance(&n->sampler, &out->cursor);
    }
    engine_take_shard(n, 0);
}

double engine_steps_made(const struct engine *n)
{
    return (double)n->step + ((double)n->step_samples + share_ahead(n)) / (double)n->sampler.global;
}

double engine_run_progress(const struct engine *n)
{
    if (n->spec->steps)
        return engine_steps_made(n) / (double)n->spec->steps;
    double position = (double)n->cursor.position + share_ahead(n);
    return ((double)n->cursor.epoch + position / (double)n->sampler.samples) / (double)n->spec->epochs;
}

bool engine_finished(const struct engine *n)
{
    return n->spec->steps ? n->step >= n->spec->steps : n->cursor.epoch >= n->spec->epochs;
}

int64_t engine_total_steps(const struct engine *n)
{
    if (n->spec->steps)
        return n->spec->steps;
    int64_t epochs_after = n->spec->epochs - n->cursor.epoch - 1;
    if (epochs_after < 0)
        return n->step;
    int64_t all;
    if (__builtin_mul_overflow(epochs_after, sampler_steps(&n->sampler), &all) ||
        __builtin_add_overflow(all, n->step + sampler_steps_left(&n->sampler, &n->cursor), &all))
        return INT64_MAX;
    return all;
}
