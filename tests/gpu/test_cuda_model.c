/* Tests models and optimizers on the emulated GPU, through the plugin, against the CPU device: gradients that products set
 * instead of adding to them, the update that also rounds parameters, and chunks of logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/mem.h"
#include "base/random.h"
#include "tests/gpu/bf16.h"
#include "trainer/model/gpt_internal.h"
#include "trainer/optim/optim.h"

enum { ROWS = 4 };

/* A model on one device, its arrays, and a batch of ROWS rows. */
struct side {
    struct device *d;
    struct model *m;
    float *params, *grads;
    void *batch[2];
    struct device_tally *tally;
    struct model_batch b;
};

static struct gpt_shape shape_of(enum device_type type, bool tied)
{
    return (struct gpt_shape){.layers = 2,
                              .heads = 2,
                              .width = 32,
                              .context = 16,
                              .vocab = 65, /* the head is padded to 128 rows on a GPU */
                              .tied = tied,
                              .activation = DEVICE_GELU_TANH,
                              .type = type};
}

static void *new_memory(struct device *d, size_t bytes)
{
    struct err e = {0};
    void *p = NULL;
    assert_int_equal(device_alloc(d, bytes, "test", &p, &e), ERR_OK);
    return p;
}

static void side_open(struct side *s, enum device_kind kind, const struct gpt_shape *shape)
{
    struct err e = {0};
    struct random r = random_stream(3, 1);
    size_t tokens = (size_t)(ROWS * shape->context);
    int32_t *host = xcalloc(tokens, sizeof(*host));
    *s = (struct side){0};
    if (device_open(&s->d, kind, 0, 1, 0, &e) || gpt_open(&s->m, shape, ROWS, s->d, &e))
        fail_msg("%s", e.msg);
    s->params = new_memory(s->d, s->m->count * sizeof(float));
    s->grads = new_memory(s->d, s->m->count * sizeof(float));
    s->tally = new_memory(s->d, sizeof(*s->tally));
    model_init(s->m, s->params, 5);
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < tokens; j++)
            host[j] = (int32_t)(random_u64(&r) % (uint64_t)shape->vocab);
        s->batch[i] = new_memory(s->d, tokens * sizeof(*host));
        s->d->ops->upload(s->d, s->batch[i], host, tokens * sizeof(*host));
    }
    free(host);
    s->b = (struct model_batch){.token = s->batch[0], .label = s->batch[1], .rows = ROWS};
}

static void side_close(struct side *s)
{
    struct err e = {0};
    void *all[] = {s->params, s->grads, s->tally, s->batch[0], s->batch[1]};
    assert_int_equal(s->d->ops->wait(s->d, &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        s->d->ops->free(s->d, all[i]);
    model_free(s->m);
    assert_int_equal(s->d->bytes, 0);
    device_close(s->d);
}

static float *floats_download(struct side *s, const float *from)
{
    float *to = xcalloc(s->m->count, sizeof(*to));
    s->d->ops->download(s->d, to, from, s->m->count * sizeof(*to));
    return to;
}

/* Returns the gradients in host memory, and the loss. */
static float *gradients_compute(struct side *s, bool set, double *loss)
{
    struct device_tally tally;
    s->d->ops->zero(s->d, s->tally, sizeof(*s->tally));
    s->b.set_grads = set;
    model_train(s->m, s->params, s->grads, &s->b, 0.25f, s->tally, NULL, NULL);
    s->d->ops->download(s->d, &tally, s->tally, sizeof(tally));
    if (loss)
        *loss = tally.loss;
    return floats_download(s, s->grads);
}

/* Fills the gradients with NaN, which shows in every result that depends on them. */
static void gradients_spoil(struct side *s)
{
    uint32_t *nan = xcalloc(s->m->count, sizeof(*nan));
    memset(nan, 0xff, s->m->count * sizeof(*nan));
    s->d->ops->upload(s->d, s->grads, nan, s->m->count * sizeof(*nan));
    free(nan);
}

static double relative_error(const float *x, const float *want, size_t n, float times)
{
    double error = 0.0, whole = 0.0;
    for (size_t i = 0; i < n; i++) {
        double w = (double)times * (double)want[i];
        error += ((double)x[i] - w) * ((double)x[i] - w);
        whole += w * w;
    }
    return sqrt(error / (whole + 1e-30));
}

/* The first micro-batch of a step overwrites the gradients: the result is the same as if they had been zero before. */
static void the_first_micro_batch_sets_gradients(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int tied = 0; tied < 2; tied++) {
            struct gpt_shape shape = shape_of(bf16 ? DEVICE_BF16 : DEVICE_F32, tied);
            struct side cpu, gpu;
            side_open(&cpu, DEVICE_CPU, &shape);
            side_open(&gpu, DEVICE_CUDA, &shape);
            size_t n = gpu.m->count;
            assert_non_null(gpu.d->ops->zero_ranges);
            gradients_spoil(&cpu);
            float *want = gradients_compute(&cpu, true, NULL), *added = gradients_compute(&gpu, false, NULL);
            gradients_spoil(&gpu);
            float *set = gradients_compute(&gpu, true, NULL);
            assert_true(relative_error(set, want, n, 1.0f) < (bf16 ? 2e-2 : 1e-5));
            for (size_t i = 0; i < n; i++)
                assert_true(set[i] == added[i]); /* the sign of a zero may differ */
            /* the next micro-batch adds to them */
            float *twice = gradients_compute(&gpu, false, NULL);
            assert_true(relative_error(twice, set, n, 2.0f) < 1e-6);
            /* a rank that has no samples */
            gradients_spoil(&gpu);
            gradients_spoil(&cpu);
            gpu.b.rows = cpu.b.rows = 0;
            float *none = gradients_compute(&gpu, true, NULL),
                  *none_cpu = gradients_compute(&cpu, true, NULL);
            for (size_t i = 0; i < n; i++)
                if (none[i] != 0.0f || none_cpu[i] != 0.0f)
                    fail_msg("gradient %zu of %zu is %g, on the CPU %g", i, n, (double)none[i],
                             (double)none_cpu[i]);
            float *all[] = {want, added, set, twice, none, none_cpu};
            for (size_t i = 0; i < ARRAY_LEN(all); i++)
                free(all[i]);
            side_close(&cpu);
            side_close(&gpu);
        }
}

/* ---- the optimizer */

static struct optim *optimizer_for(struct side *s, const struct train_spec *spec)
{
    struct optim *o = NULL;
    struct err e = {0};
    optim_open(&o, spec, s->m->count, s->d);
    for (size_t i = 0; i < s->m->tensor_count; i++) {
        const struct model_tensor *t = &s->m->tensors[i];
        if (t->matrices > 0)
            optim_matrix(o, t->offset, t->shape[0], t->shape[1], t->matrices, t->out_first);
        else if (!t->decay)
            optim_exempt(o, t->offset, t->count);
    }
    assert_int_equal(optim_alloc(o, &e), ERR_OK);
    return o;
}

/* Updates the parameters three times. Returns whether updates round parameters, too. */
static bool parameters_update(struct side *s, const struct train_spec *spec)
{
    struct optim *o = optimizer_for(s, spec);
    float *g = xcalloc(s->m->count, sizeof(*g));
    struct random r = random_stream(8, 8);
    bool narrows = optim_narrow_to(o, s->m->narrowed);
    for (int i = 0; i < 3; i++) {
        for (size_t j = 0; j < s->m->count; j++)
            g[j] = random_float(&r) - 0.5f;
        s->d->ops->upload(s->d, s->grads, g, s->m->count * sizeof(*g));
        optim_update(o, s->params, s->grads, spec->optimizer.lr, false);
    }
    optim_free(o);
    free(g);
    return narrows;
}

/* One launch updates all parameters, with the bits of the CPU device, and leaves the bf16 that `narrow` would make. The
 * parameters are rounded to bf16 where products read them. Vectors of width 18 end within 16 bytes. */
static void the_update_also_rounds_parameters(void **state)
{
    struct train_spec spec = {0};
    (void)state;
    spec.optimizer.type = OPTIMIZER_ADAMW;
    spec.optimizer.lr = 0.01;
    spec.optimizer.betas[0] = 0.9;
    spec.optimizer.betas[1] = 0.95;
    spec.optimizer.eps = 1e-8;
    spec.optimizer.weight_decay = 0.1;
    for (int odd = 0; odd < 2; odd++) {
        struct gpt_shape shape = shape_of(DEVICE_BF16, true);
        struct side cpu, gpu;
        shape.width = odd ? 18 : 32;
        shape.layers = odd ? 2 : 5; /* several blocks of threads for each range, or one */
        side_open(&cpu, DEVICE_CPU, &shape);
        side_open(&gpu, DEVICE_CUDA, &shape);
        size_t n = gpu.m->count;
        assert_int_equal(parameters_update(&cpu, &spec), cpu.m->narrowed != NULL);
        assert_true(parameters_update(&gpu, &spec));
        float *want = floats_download(&cpu, cpu.params), *got = floats_download(&gpu, gpu.params);
        uint16_t *narrow = xcalloc(n, sizeof(*narrow));
        gpu.d->ops->download(gpu.d, narrow, gpu.m->narrowed, n * sizeof(*narrow));
        assert_memory_equal(got, want, n * sizeof(*got));
        for (size_t i = 0; i < n; i++)
            assert_int_equal(narrow[i], bf16_from_float(got[i]));
        free(want);
        free(got);
        free(narrow);
        side_close(&cpu);
        side_close(&gpu);
    }
}

/* Muon updates the matrices, and in one launch AdamW all the rest. On a GPU nothing is rounded then. */
static void muon_leaves_the_rest_to_one_update(void **state)
{
    struct gpt_shape shape = shape_of(DEVICE_BF16, true);
    struct train_spec spec = {0};
    struct side cpu, gpu;
    (void)state;
    spec.optimizer.type = OPTIMIZER_MUON;
    spec.optimizer.lr = 0.02;
    spec.optimizer.momentum = 0.95;
    spec.optimizer.weight_decay = 0.1;
    spec.optimizer.adamw_lr = 3e-3;
    spec.optimizer.betas[0] = 0.9;
    spec.optimizer.betas[1] = 0.99;
    spec.optimizer.eps = 1e-8;
    side_open(&cpu, DEVICE_CPU, &shape);
    side_open(&gpu, DEVICE_CUDA, &shape);
    assert_int_equal(parameters_update(&cpu, &spec), cpu.m->narrowed != NULL);
    assert_false(parameters_update(&gpu, &spec));
    float *want = floats_download(&cpu, cpu.params), *got = floats_download(&gpu, gpu.params);
    for (size_t i = 0; i < gpu.m->tensor_count; i++) {
        const struct model_tensor *t = &gpu.m->tensors[i];
        if (t->matrices == 0)
            assert_memory_equal(got + t->offset, want + t->offset, t->count * sizeof(float));
        else
            assert_true(relative_error(got + t->offset, want + t->offset, t->count, 1.0f) < 5e-2);
    }
    free(want);
    free(got);
    side_close(&cpu);
    side_close(&gpu);
}

/* ---- chunks of logits */

/* More memory gives larger chunks, up to 4 GB. Only all of a GPU's memory counts, so a restart chooses the same. */
static void memory_that_is_left_gives_larger_chunks(void **state)
{
    const size_t gb = 1000000000;
    (void)state;
    assert_int_equal(gpt_logits_bytes(0, 9 * gb), gb);
    assert_int_equal(gpt_logits_bytes(8 * gb, 9 * gb), gb);
    assert_int_equal(gpt_logits_bytes(13 * gb, 9 * gb), 3 * gb);
    assert_int_equal(gpt_logits_bytes(15 * gb, 9 * gb), 4 * gb);
    assert_int_equal(gpt_logits_bytes(141 * gb, 20 * gb), 4 * gb);
}

/* The gradients of chunks are added in another order, so only their lowest bits may differ. */
static void chunks_of_logits_give_the_same_loss(void **state)
{
    static const char *const limits[] = {"1", "2", "100"}; /* MB of 3 MB of logits */
    static const int64_t rows[] = {64, 128, 256};
    struct gpt_shape shape = shape_of(DEVICE_BF16, true);
    float *first = NULL;
    double loss = 0.0;
    (void)state;
    shape.layers = 1;
    shape.context = 64;
    shape.vocab = 5900; /* padded to 5952 */
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        float *got[2];
        double losses[2];
        size_t n = 0;
        setenv("DDP_CUDA_LOGITS_MB", limits[i], 1);
        for (int again = 0; again < 2; again++) {
            struct side gpu;
            side_open(&gpu, DEVICE_CUDA, &shape);
            n = gpu.m->count;
            assert_int_equal(gpt_of(gpu.m)->logits_ld, 5952);
            assert_int_equal(gpt_of(gpu.m)->head_rows, rows[i]);
            got[again] = gradients_compute(&gpu, true, &losses[again]);
            side_close(&gpu);
        }
        unsetenv("DDP_CUDA_LOGITS_MB");
        assert_memory_equal(got[0], got[1], n * sizeof(float));
        assert_memory_equal(&losses[0], &losses[1], sizeof(losses[0]));
        if (!first) {
            first = got[0];
            loss = losses[0];
        } else {
            assert_true(fabs(losses[0] - loss) <= 1e-6 * fabs(loss));
            assert_true(relative_error(got[0], first, n, 1.0f) < 1e-4);
            free(got[0]);
        }
        free(got[1]);
    }
    free(first);
}

/* Workers that share a GPU count on their part of its memory. */
static void shared_gpus_have_less_memory(void **state)
{
    struct device *alone = NULL, *shared = NULL;
    struct err e = {0};
    (void)state;
    assert_int_equal(device_open(&alone, DEVICE_CUDA, 0, 1, 0, &e), ERR_OK);
    setenv("DDP_SLOTS_PER_GPU", "4", 1);
    assert_int_equal(device_open(&shared, DEVICE_CUDA, 0, 1, 0, &e), ERR_OK);
    assert_int_equal(shared->memory, alone->memory / 4);
    device_close(shared);
    device_close(alone);
    static const char *const wrong[] = {"0", "-1", "x", "", "2x"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        setenv("DDP_SLOTS_PER_GPU", wrong[i], 1);
        assert_int_equal(device_open(&shared, DEVICE_CUDA, 0, 1, 0, &e), ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "DDP_SLOTS_PER_GPU"));
    }
    unsetenv("DDP_SLOTS_PER_GPU");
    setenv("DDP_CUDA_LOGITS_MB", "4001", 1); /* 2^31 elements or more */
    assert_int_equal(device_open(&shared, DEVICE_CUDA, 0, 1, 0, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "expected a number from 1 to 4000, got '4001'"));
    unsetenv("DDP_CUDA_LOGITS_MB");
}

/* A model that has the GPU to itself keeps what one of two workers on the GPU computes again: 5 GB are for libraries. */
static void shared_gpus_keep_fewer_activations(void **state)
{
    struct gpt_shape shape = shape_of(DEVICE_BF16, true);
    (void)state;
    setenv("DDP_EMULATED_MEMORY", "8589934592", 1);
    for (int workers = 1; workers <= 2; workers++) {
        struct side gpu;
        setenv("DDP_SLOTS_PER_GPU", workers == 1 ? "1" : "2", 1);
        side_open(&gpu, DEVICE_CUDA, &shape);
        assert_int_equal(gpt_of(gpu.m)->keeps, workers == 1);
        side_close(&gpu);
    }
    unsetenv("DDP_SLOTS_PER_GPU");
    unsetenv("DDP_EMULATED_MEMORY");
}

/* The arrays of a strategy that averages take memory that activations would have otherwise. */
static void arrays_of_averaging_leave_less_memory(void **state)
{
    struct gpt_shape shape = shape_of(DEVICE_BF16, true);
    (void)state;
    setenv("DDP_EMULATED_MEMORY", "8589934592", 1);
    for (int many = 0; many < 2; many++) {
        struct side gpu;
        shape.extra_arrays = many ? 100000 : 0; /* each of 0.1 MB */
        side_open(&gpu, DEVICE_CUDA, &shape);
        assert_int_equal(gpt_of(gpu.m)->keeps, !many);
        side_close(&gpu);
    }
    unsetenv("DDP_EMULATED_MEMORY");
}

/* ---- layers that are computed again */

/* On a GPU of 8 GB, alone and shared with another worker: layers keep the outputs of their activation function, or do not. */
static void layers_computed_again_give_the_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct gpt_shape shape = shape_of(kind % 2 ? DEVICE_BF16 : DEVICE_F32, true);
        bool alone = kind < 2, odd = kind == 1 || kind == 2;
        struct side side[2];
        float *grads[2];
        double loss[2];
        setenv("DDP_SLOTS_PER_GPU", alone ? "1" : "2", 1);
        shape.layers = 3;
        shape.width = odd ? 18 : 32;
        shape.context = odd ? 7 : 16;
        for (int again = 0; again < 2; again++) {
            shape.recompute = again;
            side_open(&side[again], DEVICE_CUDA, &shape);
            assert_int_equal(gpt_of(side[again].m)->keeps, alone);
            grads[again] = gradients_compute(&side[again], true, &loss[again]);
        }
        assert_memory_equal(grads[0], grads[1], side[0].m->count * sizeof(float));
        assert_memory_equal(&loss[0], &loss[1], sizeof(loss[0]));
        for (int again = 0; again < 2; again++) {
            free(grads[again]);
            side_close(&side[again]);
        }
    }
    unsetenv("DDP_SLOTS_PER_GPU");
}

static size_t activation_bytes(struct gpt_shape shape, int64_t layers, bool again)
{
    struct side gpu;
    shape.layers = layers;
    shape.recompute = again;
    side_open(&gpu, DEVICE_CUDA, &shape);
    size_t bytes = gpu.m->activation_bytes;
    side_close(&gpu);
    return bytes;
}

/* How many extra arrays fit beside this model. */
static size_t arrays_that_fit(const struct gpt_shape *shape)
{
    const size_t libraries = (size_t)5 << 30;
    struct side gpu;
    side_open(&gpu, DEVICE_CUDA, shape);
    size_t left = gpu.d->memory - (gpu.m->activation_bytes + gpu.m->count * 18 + libraries);
    left /= gpu.m->count * sizeof(float);
    side_close(&gpu);
    return left;
}

static bool model_keeps(struct gpt_shape shape, bool again, size_t arrays)
{
    struct side gpu;
    shape.recompute = again;
    shape.extra_arrays = arrays;
    side_open(&gpu, DEVICE_CUDA, &shape);
    bool keeps = gpt_of(gpu.m)->keeps;
    side_close(&gpu);
    return keeps;
}

/* Another layer needs only its input then. The outputs of activation functions are kept as without recompute. Where the
 * memory is too small for that, they are kept, too, which costs nothing then. */
static void layers_computed_again_need_less_memory(void **state)
{
    struct gpt_shape shape = shape_of(DEVICE_BF16, true);
    const size_t tokens = ROWS * 16;
    (void)state;
    assert_int_equal(activation_bytes(shape, 3, true) - activation_bytes(shape, 2, true), tokens * 32 * 4);
    assert_int_equal(activation_bytes(shape, 3, false) - activation_bytes(shape, 2, false),
                     tokens * (32 * 36 + 2 * 8 + 2 * 4));
    shape.layers = 20;
    shape.context = 64;
    size_t without = arrays_that_fit(&shape);
    shape.recompute = true;
    size_t with = arrays_that_fit(&shape);
    for (int again = 0; again < 2; again++) {
        assert_true(model_keeps(shape, again, without));
        assert_false(model_keeps(shape, again, without + 1));
        assert_int_equal(model_keeps(shape, again, with), again);
        assert_false(model_keeps(shape, again, with + 1));
    }
}

/* The message says how much less memory `recompute` needs. */
static void missing_memory_names_the_remedy(void **state)
{
    struct gpt_shape shape = shape_of(DEVICE_BF16, true);
    struct device *d = NULL;
    struct model *m = NULL;
    struct err e = {0};
    (void)state;
    shape.layers = 500;
    shape.context = 4096;
    assert_int_equal(device_open(&d, DEVICE_CUDA, 0, 1, 0, &e), ERR_OK);
    for (int again = 0; again < 2; again++) {
        shape.recompute = again;
        assert_int_equal(gpt_open(&m, &shape, 10 * ROWS, d, &e), ERR_RESOURCE_EXHAUSTED);
        assert_int_equal(strstr(e.msg, "; with 'recompute: block' they need ") != NULL, !again);
    }
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_micro_batch_sets_gradients),
        cmocka_unit_test(the_update_also_rounds_parameters),
        cmocka_unit_test(muon_leaves_the_rest_to_one_update),
        cmocka_unit_test(memory_that_is_left_gives_larger_chunks),
        cmocka_unit_test(chunks_of_logits_give_the_same_loss),
        cmocka_unit_test(shared_gpus_have_less_memory),
        cmocka_unit_test(shared_gpus_keep_fewer_activations),
        cmocka_unit_test(arrays_of_averaging_leave_less_memory),
        cmocka_unit_test(layers_computed_again_give_the_same_bits),
        cmocka_unit_test(layers_computed_again_need_less_memory),
        cmocka_unit_test(missing_memory_names_the_remedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
