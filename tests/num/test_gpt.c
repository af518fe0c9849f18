/* Tests the whole GPT against the double-precision reference: logits, loss, and the gradient of every tensor
 * by central differences; dropout with its masks. Also tests that bits are the same from run to run and with
 * one thread and two, and that a step allocates nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/digest.h"
#include "base/mem.h"
#include "base/random.h"
#include "gpt_reference.h"
#include "pieces.h"
#include "trainer/device/cpu/cpu.h"

/* Counts the allocations of this program's own code. (The linker's --wrap does not see calls inside shared
 * libraries.) */
static long allocations;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    allocations++;
    return __real_realloc(p, n);
}
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    allocations++;
    return __real_aligned_alloc(align, n);
}

struct problem {
    struct gpt_shape shape;
    struct device *d;
    struct model *m;
    struct model_batch b;
    float *params, *grads;
    int32_t *token, *label;
    int64_t *sample;
};

static void *device_floats(struct device *d, size_t count)
{
    struct err e = {0};
    void *p = NULL;
    assert_int_equal(device_alloc(d, count * sizeof(float), "test", &p, &e), ERR_OK);
    return p;
}

/* Adds noise to biases and norms, too, so that a wrong offset changes the result. */
static void params_shake(struct problem *p)
{
    struct random r = random_stream(7, 7);
    model_init(p->m, p->params, 5);
    for (size_t t = 0; t < p->m->tensor_count; t++)
        for (size_t i = 0; i < p->m->tensors[t].count; i++)
            p->params[p->m->tensors[t].offset + i] += 0.3f * (random_float(&r) - 0.5f);
}

static void problem_open(struct problem *p, struct gpt_shape shape, int64_t rows)
{
    struct err e = {0};
    struct random r = random_stream(3, 1);
    size_t tokens = (size_t)(rows * shape.context);
    *p = (struct problem){.shape = shape};
    assert_int_equal(device_open(&p->d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    assert_int_equal(gpt_open(&p->m, &shape, rows, p->d, &e), ERR_OK);
    p->params = device_floats(p->d, p->m->count);
    p->grads = device_floats(p->d, p->m->count);
    p->token = xcalloc(tokens, sizeof(int32_t));
    p->label = xcalloc(tokens, sizeof(int32_t));
    p->sample = xcalloc((size_t)rows, sizeof(int64_t));
    for (size_t i = 0; i < tokens; i++) {
        p->token[i] = (int32_t)(random_u64(&r) % (uint64_t)shape.vocab);
        p->label[i] = (int32_t)(random_u64(&r) % (uint64_t)shape.vocab);
    }
    for (int64_t i = 0; i < rows; i++)
        p->sample[i] = 1000 * i + ((int64_t)i << 33);
    p->b = (struct model_batch){
        .token = p->token, .label = p->label, .rows = rows, .sample = p->sample, .step = 12};
    params_shake(p);
}

static void problem_close(struct problem *p)
{
    p->d->ops->free(p->d, p->params);
    p->d->ops->free(p->d, p->grads);
    model_free(p->m);
    assert_int_equal(p->d->bytes, 0);
    device_close(p->d);
    free(p->token);
    free(p->label);
    free(p->sample);
}

static double *floats_widened(const float *x, size_t n)
{
    double *wide = xcalloc(n, sizeof(double));
    for (size_t i = 0; i < n; i++)
        wide[i] = (double)x[i];
    return wide;
}

static struct gpt_shape shape_of(int64_t width, int64_t heads, int64_t layers, int64_t context, int64_t vocab)
{
    return (struct gpt_shape){.layers = layers,
                              .heads = heads,
                              .width = width,
                              .context = context,
                              .vocab = vocab,
                              .tied = true,
                              .activation = DEVICE_GELU_TANH,
                              .seed = 99};
}

/* Checks some elements of each tensor one by one, and the derivative along a random direction; `tolerance` is
 * relative to the tensor's largest gradient. */
static void check_tensor(struct problem *p, size_t t, double *wide, double scale, int samples,
                         double tolerance)
{
    const struct model_tensor *tensor = &p->m->tensors[t];
    const float *grads = p->grads + tensor->offset;
    double *params = wide + tensor->offset, most = 0.0, along = 0.0, size = 0.0;
    bool dropping = p->shape.dropout > 0.0;
    struct random r = random_stream(17, t);
    const double h = 1e-5;
    for (size_t i = 0; i < tensor->count; i++)
        most = fmax(most, fabs((double)grads[i]));
    for (int n = 0; n < samples; n++) {
        size_t i = (size_t)random_u64(&r) % tensor->count;
        double kept = params[i];
        params[i] = kept + h;
        double up = reference_loss(p->m, &p->shape, wide, &p->b, dropping);
        params[i] = kept - h;
        double want = scale * (up - reference_loss(p->m, &p->shape, wide, &p->b, dropping)) / (2.0 * h);
        params[i] = kept;
        if (fabs(want - (double)grads[i]) > tolerance * (most + 1e-6))
            fail_msg("%s[%zu]: gradient %.8g, differences say %.8g", tensor->name, i, (double)grads[i], want);
    }
    double *direction = xcalloc(tensor->count, sizeof(double));
    for (size_t i = 0; i < tensor->count; i++) {
        direction[i] = (double)random_float(&r) - 0.5;
        size += direction[i] * direction[i];
        along += direction[i] * (double)grads[i];
        params[i] += h * direction[i];
    }
    double up = reference_loss(p->m, &p->shape, wide, &p->b, dropping);
    for (size_t i = 0; i < tensor->count; i++)
        params[i] -= 2.0 * h * direction[i];
    double want = scale * (up - reference_loss(p->m, &p->shape, wide, &p->b, dropping)) / (2.0 * h);
    for (size_t i = 0; i < tensor->count; i++)
        params[i] += h * direction[i];
    free(direction);
    if (fabs(want - along) > tolerance * (fabs(want) + most * sqrt(size)))
        fail_msg("%s: along a direction %.8g, differences say %.8g", tensor->name, along, want);
}

static void gradients_check(struct gpt_shape shape, int64_t rows, int samples, double tolerance)
{
    struct problem p;
    struct err e = {0};
    struct device_tally tally = {0};
    problem_open(&p, shape, rows);
    struct pieces pieces = pieces_open(p.m);
    double *wide = floats_widened(p.params, p.m->count);
    double want = reference_loss(p.m, &shape, wide, &p.b, shape.dropout > 0.0);
    model_train(p.m, p.params, p.grads, &p.b, 0.25f, &tally, pieces_ready, &pieces);
    assert_int_equal(p.d->ops->wait(p.d, &e), ERR_OK);
    assert_int_equal(pieces.end, 0);
    assert_int_equal(pieces.count, 2 * shape.layers + 2);
    if (fabs(tally.loss - want) > 1e-5 * want)
        fail_msg("loss %.9g, reference %.9g", tally.loss, want);
    for (size_t t = 0; t < p.m->tensor_count; t++)
        check_tensor(&p, t, wide, 0.25, samples, tolerance);
    free(wide);
    problem_close(&p);
}

static void every_gradient(void **state)
{
    static const int64_t contexts[] = {1, 7, 129};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(contexts); i++) {
        int samples = contexts[i] > 64 ? 1 : 6;
        gradients_check(shape_of(48, 3, 2, contexts[i], 65), contexts[i] > 64 ? 1 : 3, samples, 2e-5);
    }
}

static void every_kind(void **state)
{
    (void)state;
    /* Heads of size 4, which is not a multiple of any vector width. */
    struct gpt_shape s = shape_of(20, 5, 3, 6, 11);
    s.tied = false;
    s.activation = DEVICE_GELU;
    gradients_check(s, 2, 8, 2e-5);
    s.dropout = 0.25;
    gradients_check(s, 2, 8, 2e-5);
    s.context = 70;
    s.tied = true;
    gradients_check(s, 2, 2, 2e-5);
}

static void a_large_vocabulary_comes_in_chunks(void **state)
{
    (void)state;
    /* 250 rows of logits are 48 MB: 300 tokens make two chunks */
    gradients_check(shape_of(8, 2, 1, 150, 50257), 2, 0, 2e-5);
}

static void logits_match_the_reference(void **state)
{
    struct problem p;
    (void)state;
    problem_open(&p, shape_of(48, 4, 2, 33, 65), 3);
    size_t count = 3 * 33 * 65;
    float *got = device_floats(p.d, count);
    double *wide = floats_widened(p.params, p.m->count), *want = xcalloc(count, sizeof(double));
    struct device_tally tally = {0};
    double loss = reference_logits(p.m, &p.shape, wide, &p.b, want);
    gpt_logits(p.m, p.params, &p.b, got);
    for (size_t i = 0; i < count; i++)
        assert_true(fabs(want[i] - (double)got[i]) < 1e-5 * (1.0 + fabs(want[i])));
    model_evaluate(p.m, p.params, &p.b, &tally);
    assert_true(fabs(tally.loss - loss) < 1e-5 * loss);
    p.d->ops->free(p.d, got);
    free(want);
    free(wide);
    problem_close(&p);
}

/* Each token whose label has the largest logit adds 1 / context to `correct`. */
static void correct_is_a_share_of_tokens(void **state)
{
    struct problem p;
    struct device_tally tally = {0};
    (void)state;
    problem_open(&p, shape_of(48, 4, 1, 10, 65), 2);
    size_t count = 2 * 10 * 65;
    float *out = device_floats(p.d, count);
    gpt_logits(p.m, p.params, &p.b, out);
    for (int i = 0; i < 20; i++) {
        int best = 0;
        for (int v = 1; v < 65; v++)
            best = out[i * 65 + v] > out[i * 65 + best] ? v : best;
        p.label[i] = i % 4 ? best : (best + 1) % 65;
    }
    model_evaluate(p.m, p.params, &p.b, &tally);
    assert_true(fabs(tally.correct - 1.5) < 1e-9);
    p.d->ops->free(p.d, out);
    problem_close(&p);
}

/* bf16 has a mantissa of 8 bits. So a gradient of one element may differ much from that of float, but the whole
 * gradient is close. */
static void bf16_gradients_are_close_to_float(void **state)
{
    struct problem p, q;
    struct device_tally a = {0}, b = {0};
    (void)state;
    struct gpt_shape s = shape_of(48, 3, 2, 65, 65);
    problem_open(&p, s, 3);
    s.type = DEVICE_BF16;
    problem_open(&q, s, 3);
    model_train(p.m, p.params, p.grads, &p.b, 1.0f, &a, NULL, NULL);
    model_train(q.m, q.params, q.grads, &q.b, 1.0f, &b, NULL, NULL);
    assert_true(fabs(a.loss - b.loss) < 5e-3 * a.loss);
    for (size_t t = 0; t < p.m->tensor_count; t++) {
        const struct model_tensor *x = &p.m->tensors[t];
        double away = 0.0, size = 0.0;
        for (size_t i = x->offset; i < x->offset + x->count; i++) {
            away += pow((double)p.grads[i] - (double)q.grads[i], 2.0);
            size += pow((double)p.grads[i], 2.0);
        }
        if (sqrt(away) > 2e-2 * sqrt(size))
            fail_msg("%s: the relative error of the bf16 gradient is %.3g", x->name, sqrt(away / size));
    }
    problem_close(&p);
    problem_close(&q);
}

/* wait would return an error of the device. */
static void problem_train(struct problem *p, struct device_tally *tally)
{
    struct err e = {0};
    memset(p->grads, 0, p->m->count * sizeof(float));
    *tally = (struct device_tally){0};
    model_train(p->m, p->params, p->grads, &p->b, 1.0f, tally, NULL, NULL);
    assert_int_equal(p->d->ops->wait(p->d, &e), ERR_OK);
}

static void same_bits_again_and_by_other_threads(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct problem p;
        struct device_tally first, again;
        struct gpt_shape s = shape_of(48, 3, 2, 129, 65);
        s.dropout = kind == 1 ? 0.1 : 0.0;
        s.type = kind == 2 ? DEVICE_BF16 : DEVICE_F32;
        problem_open(&p, s, 4);
        float *kept = xcalloc(p.m->count, sizeof(float));
        struct cpu_device *c = cpu_of(p.d);
        for (int threads = 1; threads <= 2; threads++) {
            cpu_threads_open(&c->threads, threads);
            problem_train(&p, &first);
            memcpy(kept, p.grads, p.m->count * sizeof(float));
            problem_train(&p, &again);
            assert_memory_equal(kept, p.grads, p.m->count * sizeof(float));
            assert_memory_equal(&first, &again, sizeof(first));
        }
        free(kept);
        problem_close(&p);
    }
}

/* With recompute the second pass adds to the gradients of the first, as in a step of two micro-batches. */
static void layers_computed_again_give_the_same_bits(void **state)
{
    static const int64_t sizes[][5] = {
        {20, 5, 3, 7, 11}, {48, 3, 4, 33, 65}, {17, 1, 2, 5, 9}, {20, 5, 1, 7, 11}};
    (void)state;
    for (size_t kind = 0; kind < ARRAY_LEN(sizes); kind++) {
        const int64_t *size = sizes[kind];
        struct problem p[2];
        struct device_tally tally[2];
        struct gpt_shape s = shape_of(size[0], size[1], size[2], size[3], size[4]);
        s.dropout = kind % 2 ? 0.2 : 0.0;
        s.type = kind % 3 ? DEVICE_BF16 : DEVICE_F32;
        for (int again = 0; again < 2; again++) {
            struct problem *q = &p[again];
            s.recompute = again;
            problem_open(q, s, 3);
            problem_train(q, &tally[again]);
            q->b.step++;
            model_train(q->m, q->params, q->grads, &q->b, 0.7f, &tally[again], NULL, NULL);
        }
        assert_memory_equal(p[0].grads, p[1].grads, p[0].m->count * sizeof(float));
        assert_memory_equal(&tally[0], &tally[1], sizeof(tally[0]));
        assert_true(s.layers == 1 || p[1].m->activation_bytes < p[0].m->activation_bytes);
        problem_close(&p[0]);
        problem_close(&p[1]);
    }
}

/* The bf16 copy of the parameters is made again for each batch, unless the batch says that they did not change. */
static void weights_are_made_once(void **state)
{
    struct problem p;
    struct device_tally first, kept, again, changed;
    (void)state;
    struct gpt_shape s = shape_of(48, 3, 2, 16, 65);
    s.type = DEVICE_BF16;
    problem_open(&p, s, 2);
    problem_train(&p, &first);
    const struct model_tensor *t = p.m->tensors;
    while (strcmp(t->name, "transformer.h.0.mlp.c_fc.weight") != 0)
        t++;
    for (size_t i = 0; i < t->count; i++)
        p.params[t->offset + i] *= 2.0f;
    p.b.same_params = true;
    problem_train(&p, &kept);
    assert_memory_equal(&first, &kept, sizeof(first));
    model_evaluate(p.m, p.params, &p.b, memset(&again, 0, sizeof(again)));
    assert_memory_equal(&first, &again, sizeof(first));
    p.b.same_params = false;
    problem_train(&p, &changed);
    assert_true(fabs(first.loss - changed.loss) > 1e-6 * first.loss);
    problem_close(&p);
}

/* A row's mask depends on its sample only, wherever the row is in the batch. */
static void masks_follow_samples(void **state)
{
    struct problem p;
    struct device_tally both, sum = {0};
    (void)state;
    struct gpt_shape s = shape_of(48, 3, 2, 16, 65);
    s.dropout = 0.3;
    problem_open(&p, s, 2);
    problem_train(&p, &both);
    for (int row = 1; row >= 0; row--) {
        struct model_batch b = p.b;
        b.token += row * 16;
        b.label += row * 16;
        b.sample += row;
        b.rows = 1;
        model_train(p.m, p.params, p.grads, &b, 1.0f, &sum, NULL, NULL);
    }
    assert_true(fabs(both.loss - sum.loss) < 1e-6 * both.loss);
    p.b.step++;
    problem_train(&p, &sum);
    assert_true(fabs(both.loss - sum.loss) > 1e-6 * both.loss);
    problem_close(&p);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    for (int type = DEVICE_F32; type <= DEVICE_BF16; type++) {
        struct problem p;
        struct device_tally tally;
        struct gpt_shape s = shape_of(48, 3, 2, 129, 65);
        s.dropout = 0.1;
        s.type = (enum device_type)type;
        problem_open(&p, s, 4);
        size_t bytes = p.d->bytes, workspace = p.d->workspace;
        problem_train(&p, &tally); /* in the first step oneDNN compiles kernels, which allocates memory */
        long before = allocations;
        for (int i = 0; i < 3; i++)
            problem_train(&p, &tally);
        assert_int_equal(allocations, before);
        assert_int_equal(p.d->bytes, bytes);
        assert_int_equal(p.d->workspace, workspace);
        problem_close(&p);
    }
}

static void names_and_shapes_are_those_of_hugging_face(void **state)
{
    struct problem p;
    (void)state;
    struct gpt_shape s = shape_of(48, 3, 2, 16, 65);
    s.tied = false;
    problem_open(&p, s, 1);
    assert_int_equal(p.m->tensor_count, 2 + 2 * 12 + 2 + 1);
    const struct model_tensor *t = &p.m->tensors[4];
    assert_string_equal(t->name, "transformer.h.0.attn.c_attn.weight");
    assert_true(t->shape[0] == 48 && t->shape[1] == 144 && t->decay);
    assert_string_equal(t[1].name, "transformer.h.0.attn.c_attn.bias");
    assert_true(t[1].dims == 1 && t[1].shape[0] == 144 && !t[1].decay);
    assert_string_equal(p.m->tensors[28].name, "lm_head.weight");
    assert_int_equal(p.m->parameters, 65 * 48 * 2 + 16 * 48 + 2 * (12 * 48 * 48 + 13 * 48) + 2 * 48);
    /* operations of matrix products and of attention for one row of 16 tokens */
    double weights = 2.0 * 12.0 * 48.0 * 48.0 + 65.0 * 48.0;
    assert_true(model_flops(p.m, 1) == 16.0 * (6.0 * weights + 6.0 * 2.0 * 16.0 * 48.0));
    problem_close(&p);
}

static void initial_parameters_have_the_right_distribution(void **state)
{
    struct problem p;
    (void)state;
    problem_open(&p, shape_of(128, 4, 8, 16, 65), 1);
    model_init(p.m, p.params, 1);
    for (size_t t = 0; t < p.m->tensor_count; t++) {
        const struct model_tensor *x = &p.m->tensors[t];
        bool residual = strstr(x->name, "c_proj.weight") != NULL, gain = strstr(x->name, "ln_") != NULL;
        double mean = 0.0, square = 0.0, want = residual ? 0.02 / 4.0 : 0.02;
        for (size_t i = 0; i < x->count; i++) {
            double v = (double)p.params[x->offset + i];
            mean += v / (double)x->count;
            square += v * v / (double)x->count;
            if (x->dims == 1)
                assert_true(v == (gain && strstr(x->name, "weight") ? 1.0 : 0.0));
        }
        if (x->dims == 2) {
            assert_true(fabs(sqrt(square) - want) < 0.05 * want);
            assert_true(fabs(mean) < 5.0 * want / sqrt((double)x->count));
        }
    }
    problem_close(&p);
}

/* The parameters that a seed gives must be the same in every version and on every machine. */
static void initial_parameters_are_the_same_in_every_version(void **state)
{
    struct problem p;
    (void)state;
    problem_open(&p, shape_of(128, 4, 8, 16, 65), 1);
    memset(p.params, 0, p.m->count * sizeof(float));
    model_init(p.m, p.params, 1);
    assert_int_equal(digest64(0, p.params, p.m->count * sizeof(float)), 0x2ee39f1541507662u);
    model_init(p.m, p.params, 2);
    assert_int_equal(digest64(0, p.params, p.m->count * sizeof(float)), 0x358f44e6ae5c462u);
    problem_close(&p);
}

static void initial_parameters_do_not_depend_on_threads(void **state)
{
    struct problem p;
    (void)state;
    problem_open(&p, shape_of(256, 4, 8, 16, 65), 1);
    const size_t bytes = p.m->count * sizeof(float);
    assert_true(p.m->count >= 4000000); /* INIT_ALONE in gpt.c */
    float *alone = xcalloc(p.m->count, sizeof(float));
    for (int threads = 1; threads <= 4; threads += 3) {
        memset(p.params, 0, bytes);
        p.d->threads = threads;
        model_init(p.m, p.params, 1);
        if (threads == 1)
            memcpy(alone, p.params, bytes);
    }
    assert_memory_equal(alone, p.params, bytes);
    free(alone);
    problem_close(&p);
}

static void the_width_must_be_a_multiple_of_heads(void **state)
{
    struct device *d = NULL;
    struct model *m = NULL;
    struct err e = {0};
    struct gpt_shape s = shape_of(48, 5, 1, 8, 10);
    struct train_spec spec = {
        .model = {.type = MODEL_GPT, .layers = 1, .heads = 2, .width = 8, .context = 4}};
    (void)state;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    assert_int_equal(gpt_open(&m, &s, 1, d, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg,
                        "invalid value for 'model.width': expected a multiple of model.heads (5), got 48");
    assert_int_equal(model_open(&m, &spec, LOSS_CROSS_ENTROPY, 5, 10, 1, 0, d, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the model's context is 4, but the data has windows of 5");
    spec.model.vocab = 9;
    assert_int_equal(model_open(&m, &spec, LOSS_CROSS_ENTROPY, 4, 10, 1, 0, d, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the model's vocabulary is 9, but the data has 10 symbols");
    spec.model.vocab = 0;
    assert_int_equal(model_open(&m, &spec, LOSS_CROSS_ENTROPY, 4, 10, 1, 0, d, &e), ERR_OK);
    assert_int_equal(m->out, 10);
    model_free(m);
    device_close(d);
}

static const struct device_ops *peak_ops; /* of the device whose products look_at_factors looks at */
static int peak_products;

/* Factors of a peak are numbers of both signs between 0.5 and 2; rows differ. */
static void look_at_factors(struct device *d, const struct device_product *h)
{
    int64_t negative = 0, left = h->m * h->k, right = h->k * h->n;
    for (int64_t i = 0; i < left + right; i++) {
        float x = i < left ? ((const float *)h->a)[i] : ((const float *)h->b)[i - left];
        negative += x < 0.0f;
        if (!(fabsf(x) >= 0.5f && fabsf(x) < 2.0f))
            fail_msg("element %lld is %g", (long long)i, (double)x);
    }
    assert_true(negative > (left + right) / 3 && negative < (left + right) * 2 / 3);
    assert_memory_not_equal(h->a, (const float *)h->a + h->k, (size_t)h->k * sizeof(float));
    if (peak_products++ == 0)
        peak_ops->product(d, h);
}

static void the_peak_is_of_random_numbers(void **state)
{
    struct device *d = NULL;
    struct err e = {0};
    double flops = 0.0;
    (void)state;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 1, &e), ERR_OK);
    struct device_ops looking = *d->ops;
    peak_ops = d->ops;
    looking.product = look_at_factors;
    d->ops = &looking;
    enum err_code code = device_peak(d, DEVICE_F32, &flops, &e);
    d->ops = peak_ops;
    device_close(d);
    assert_int_equal(code, ERR_OK);
    assert_true(peak_products > 0);
}

static void the_peak_is_a_rate(void **state)
{
    struct device *d = NULL;
    struct err e = {0};
    double flops = 0.0;
    (void)state;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    assert_int_equal(device_peak(d, DEVICE_F32, &flops, &e), ERR_OK);
    /* no higher lower bound, because an emulated processor is slow */
    assert_true(flops > 0.0 && flops < 1e15);
    assert_int_equal(d->bytes, 0);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_match_the_reference),
        cmocka_unit_test(every_gradient),
        cmocka_unit_test(every_kind),
        cmocka_unit_test(a_large_vocabulary_comes_in_chunks),
        cmocka_unit_test(correct_is_a_share_of_tokens),
        cmocka_unit_test(bf16_gradients_are_close_to_float),
        cmocka_unit_test(same_bits_again_and_by_other_threads),
        cmocka_unit_test(layers_computed_again_give_the_same_bits),
        cmocka_unit_test(weights_are_made_once),
        cmocka_unit_test(masks_follow_samples),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(names_and_shapes_are_those_of_hugging_face),
        cmocka_unit_test(initial_parameters_have_the_right_distribution),
        cmocka_unit_test(initial_parameters_are_the_same_in_every_version),
        cmocka_unit_test(initial_parameters_do_not_depend_on_threads),
        cmocka_unit_test(the_width_must_be_a_multiple_of_heads),
        cmocka_unit_test(the_peak_is_a_rate),
        cmocka_unit_test(the_peak_is_of_random_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
