/* Tests the gradients of every loss, activation and model against central differences of a double-precision
 * forward pass in this file, and forward losses against the same pass. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/random.h"
#include "pieces.h"
#include "trainer/model/model.h"

#define ROWS 7

static double activation_of(enum activation_type type, double x)
{
    switch (type) {
    case ACTIVATION_RELU:
        return x > 0.0 ? x : 0.0;
    case ACTIVATION_TANH:
        return tanh(x);
    case ACTIVATION_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case ACTIVATION_GELU_TANH:
        break;
    }
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

struct problem {
    struct train_spec spec;
    enum loss_type loss;
    int64_t sizes[5];
    size_t layers;
    float *x, *y;
    int32_t *label;
};

static double row_loss(const struct problem *p, int64_t row, const double *out, int64_t n)
{
    double sum = 0.0, top = out[0];
    if (p->loss == LOSS_MSE) {
        for (int64_t j = 0; j < n; j++)
            sum += pow(out[j] - (double)p->y[row * n + j], 2.0);
        return sum / (double)n;
    }
    for (int64_t j = 0; j < n; j++)
        top = fmax(top, out[j]);
    for (int64_t j = 0; j < n; j++)
        sum += exp(out[j] - top);
    return top + log(sum) - out[p->label[row]];
}

/* Returns the sum of the rows' losses. */
static double loss_reference(const struct problem *p, const struct model *m, const double *params)
{
    double total = 0.0, a[64], z[64];
    for (int64_t row = 0; row < ROWS; row++) {
        for (int64_t k = 0; k < p->sizes[0]; k++)
            a[k] = (double)p->x[row * p->sizes[0] + k];
        for (size_t l = 0; l < p->layers; l++) {
            const double *w = params + m->tensors[2 * l].offset, *b = params + m->tensors[2 * l + 1].offset;
            int64_t in = p->sizes[l], out = p->sizes[l + 1];
            for (int64_t j = 0; j < out; j++) {
                z[j] = b[j];
                for (int64_t k = 0; k < in; k++)
                    z[j] += w[j * in + k] * a[k];
            }
            for (int64_t j = 0; j < out; j++)
                a[j] = l + 1 < p->layers ? activation_of(p->spec.model.activation, z[j]) : z[j];
        }
        total += row_loss(p, row, a, p->sizes[p->layers]);
    }
    return total;
}

static void problem_init(struct problem *p, enum loss_type loss, enum activation_type type, size_t layers)
{
    static const int64_t sizes[5] = {6, 9, 8, 5, 4};
    struct random r = random_stream(3, layers);
    *p = (struct problem){.loss = loss, .layers = layers};
    memcpy(p->sizes, sizes, sizeof(sizes));
    p->spec.model.type = layers == 1 ? MODEL_LINEAR : MODEL_MLP;
    p->spec.model.in = sizes[0];
    p->spec.model.out = sizes[1];
    p->spec.model.sizes = p->sizes;
    p->spec.model.size_count = layers + 1;
    p->spec.model.activation = type;
    p->x = xcalloc(ROWS * (size_t)sizes[0], sizeof(float));
    p->y = xcalloc(ROWS * 16, sizeof(float));
    p->label = xcalloc(ROWS, sizeof(int32_t));
    for (int i = 0; i < ROWS * (int)sizes[0]; i++)
        p->x[i] = 4.0f * random_float(&r) - 2.0f;
    for (int i = 0; i < ROWS * 16; i++)
        p->y[i] = 2.0f * random_float(&r) - 1.0f;
    for (int i = 0; i < ROWS; i++)
        p->label[i] = (int32_t)(random_u64(&r) % (uint64_t)sizes[layers]);
}

static void problem_release(struct problem *p)
{
    free(p->x);
    free(p->y);
    free(p->label);
}

static void gradients_compare(const struct problem *p, const struct model *m, const float *params,
                              const float *grads, double scale)
{
    double *wide = xcalloc(m->count, sizeof(double));
    for (size_t i = 0; i < m->count; i++)
        wide[i] = (double)params[i];
    for (size_t t = 0; t < m->tensor_count; t++) {
        for (size_t i = m->tensors[t].offset; i < m->tensors[t].offset + m->tensors[t].count; i++) {
            const double step = 1e-6;
            wide[i] = (double)params[i] + step;
            double up = loss_reference(p, m, wide);
            wide[i] = (double)params[i] - step;
            double down = loss_reference(p, m, wide);
            wide[i] = (double)params[i];
            double want = scale * (up - down) / (2.0 * step);
            if (fabs(want - (double)grads[i]) > 2e-5 * (1.0 + fabs(want)))
                fail_msg("%s[%zu]: gradient %.8g, differences say %.8g", m->tensors[t].name,
                         i - m->tensors[t].offset, (double)grads[i], want);
        }
    }
    free(wide);
}

static void gradients_check(enum loss_type loss, enum activation_type type, size_t layers)
{
    struct problem p;
    struct device *d = NULL;
    struct model *m = NULL;
    struct err e = {0};
    struct device_tally tally = {0}, judged = {0};
    problem_init(&p, loss, type, layers);
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    assert_int_equal(model_open(&m, &p.spec, loss, p.sizes[0], p.sizes[layers], ROWS, 0, d, &e), ERR_OK);
    void *params, *grads;
    assert_int_equal(device_alloc(d, m->count * sizeof(float), "p", &params, &e), ERR_OK);
    assert_int_equal(device_alloc(d, m->count * sizeof(float), "g", &grads, &e), ERR_OK);
    model_init(m, params, 11);
    struct model_batch b = {.x = p.x, .y = p.y, .label = p.label, .rows = ROWS};
    struct pieces pieces = pieces_open(m);
    model_train(m, params, grads, &b, 0.25f, &tally, pieces_ready, &pieces);
    assert_int_equal(pieces.end, 0);
    assert_int_equal(pieces.count, layers);
    gradients_compare(&p, m, params, grads, 0.25);

    double *wide = xcalloc(m->count, sizeof(double));
    for (size_t i = 0; i < m->count; i++)
        wide[i] = (double)((float *)params)[i];
    double want = loss_reference(&p, m, wide);
    free(wide);
    assert_true(fabs(tally.loss - want) < 1e-5 * (1.0 + fabs(want)));
    model_evaluate(m, params, &b, &judged);
    assert_true(judged.loss == tally.loss && judged.correct == tally.correct);

    /* A second micro-batch adds its gradients to those of the first. A third one without rows adds nothing, but still
     * reports that all pieces of the gradient are final. */
    model_train(m, params, grads, &b, 0.25f, &tally, NULL, NULL);
    gradients_compare(&p, m, params, grads, 0.5);
    b.rows = 0;
    pieces = (struct pieces){.end = m->count};
    model_train(m, params, grads, &b, 0.25f, &tally, pieces_ready, &pieces);
    assert_int_equal(pieces.end, 0);
    gradients_compare(&p, m, params, grads, 0.5);

    d->ops->free(d, params);
    d->ops->free(d, grads);
    model_free(m);
    assert_int_equal(d->bytes, 0);
    device_close(d);
    problem_release(&p);
}

/* ---- parameters that arrive while the forward pass runs */

struct arrival {
    const float *all;
    const uint16_t *all_narrowed; /* NULL: the model has no bf16 weights */
    float *params, *grads;
    uint16_t *narrowed;
    size_t count, arrived;
    int calls;
    const struct model *model;
};

/* A unit of the model begins here. */
static bool unit_needs(const struct model *m, size_t end)
{
    struct model_unit units[64];
    for (size_t i = model_units(m, units); i-- > 0;)
        if (units[i].need == end)
            return true;
    return false;
}

/* Brings the parameters that the pass asks for, and no others. The other parameters are NAN. */
static void parameters_arrive(void *arg, size_t end)
{
    struct arrival *a = arg;
    assert_true(end <= a->count && unit_needs(a->model, end));
    for (size_t i = 0; i < a->count; i++)
        assert_true(isnan(a->grads[i])); /* data that is on its way may be there */
    a->calls++;
    if (end <= a->arrived)
        return;
    memcpy(a->params + a->arrived, a->all + a->arrived, (end - a->arrived) * sizeof(float));
    if (a->all_narrowed)
        memcpy(a->narrowed + a->arrived, a->all_narrowed + a->arrived,
               (end - a->arrived) * sizeof(*a->narrowed));
    a->arrived = end;
}

static void fill_nan(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = NAN;
}

static float *device_floats(struct device *d, size_t count)
{
    void *p = NULL;
    struct err e = {0};
    assert_int_equal(device_alloc(d, count * sizeof(float), "floats", &p, &e), ERR_OK);
    return p;
}

/* Trains once with all parameters and once with parameters that arrive. sent_narrow: the bf16 weights arrive, too. */
static void arrival_check(struct model *m, struct device *d, struct model_batch b, int layers,
                          bool sent_narrow)
{
    struct device_tally want = {0}, got = {0};
    float *all = device_floats(d, m->count), *late = device_floats(d, m->count);
    float *grads[2] = {device_floats(d, m->count), device_floats(d, m->count)};
    uint16_t *narrowed = m->narrowed ? xcalloc(m->count, sizeof(*narrowed)) : NULL;
    model_init(m, all, 11);
    b.set_grads = true;
    for (int i = 0; i < 2; i++)
        fill_nan(grads[i], m->count);
    model_train(m, all, grads[0], &b, 0.25f, &want, NULL, NULL);
    if (narrowed)
        memcpy(narrowed, m->narrowed, m->count * sizeof(*narrowed));
    fill_nan(late, m->count);
    if (sent_narrow)
        memset(m->narrowed, 0xff, m->count * sizeof(*narrowed));
    struct arrival a = {all, sent_narrow ? narrowed : NULL, late, grads[1], m->narrowed, m->count, 0, 0, m};
    b.need = parameters_arrive;
    b.need_arg = &a;
    b.same_params = sent_narrow;
    model_train(m, late, grads[1], &b, 0.25f, &got, NULL, NULL);
    assert_true(a.calls > layers && a.arrived == m->count);
    assert_true(want.loss == got.loss && want.correct == got.correct);
    assert_memory_equal(grads[0], grads[1], m->count * sizeof(float));
    /* A rank without samples waits before it sets the gradients to zero. */
    fill_nan(grads[1], m->count);
    a.arrived = 0;
    a.calls = 0;
    b.rows = 0;
    model_train(m, late, grads[1], &b, 0.25f, &got, NULL, NULL);
    assert_true(a.calls == 1 && a.arrived == m->count && grads[1][0] == 0.0f);
    d->ops->free(d, all);
    d->ops->free(d, late);
    d->ops->free(d, grads[0]);
    d->ops->free(d, grads[1]);
    free(narrowed);
}

static void nothing_is_read_before_it_has_arrived(void **state)
{
    struct device *d = NULL;
    struct model *m = NULL;
    struct err e = {0};
    (void)state;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 1, &e), ERR_OK);
    for (size_t layers = 1; layers <= 4; layers++) {
        struct problem p;
        problem_init(&p, LOSS_CROSS_ENTROPY, ACTIVATION_TANH, layers);
        assert_int_equal(model_open(&m, &p.spec, p.loss, p.sizes[0], p.sizes[layers], ROWS, 0, d, &e),
                         ERR_OK);
        arrival_check(m, d, (struct model_batch){.x = p.x, .label = p.label, .rows = ROWS}, (int)layers - 1,
                      false);
        model_free(m);
        problem_release(&p);
    }
    for (int way = 0; way < 16; way++) {
        const bool bf16 = way & 2, sent_narrow = way & 4;
        struct train_spec spec = {.model = {.type = MODEL_GPT,
                                            .layers = 3,
                                            .heads = 2,
                                            .width = 16,
                                            .context = 5,
                                            .tied = !(way & 1),
                                            .activation = ACTIVATION_GELU_TANH},
                                  .precision = bf16 ? PRECISION_BF16 : PRECISION_FP32,
                                  .recompute = way & 8 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE};
        int32_t token[2 * 5], label[2 * 5];
        if (sent_narrow && !bf16)
            continue;
        for (int i = 0; i < 2 * 5; i++) {
            token[i] = i * 7 % 20;
            label[i] = i * 11 % 20;
        }
        if (model_open(&m, &spec, LOSS_CROSS_ENTROPY, 5, 20, 2, 0, d, &e))
            fail_msg("%s", e.msg);
        arrival_check(m, d, (struct model_batch){.token = token, .label = label, .rows = 2},
                      bf16 && !sent_narrow ? 0 : 3, sent_narrow);
        model_free(m);
    }
    device_close(d);
}

static void every_loss_activation_and_depth(void **state)
{
    static const enum activation_type types[] = {ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATION_TANH,
                                                 ACTIVATION_GELU_TANH};
    (void)state;
    for (size_t a = 0; a < ARRAY_LEN(types); a++)
        for (size_t layers = 1; layers <= 4; layers++) {
            gradients_check(LOSS_MSE, types[a], layers);
            gradients_check(LOSS_CROSS_ENTROPY, types[a], layers);
        }
}

static void model_and_data_must_have_the_same_widths(void **state)
{
    struct problem p;
    struct device *d = NULL;
    struct model *m = NULL;
    struct err e = {0};
    (void)state;
    problem_init(&p, LOSS_MSE, ACTIVATION_RELU, 2);
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    assert_int_equal(model_open(&m, &p.spec, LOSS_MSE, 5, 8, ROWS, 0, d, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the model has 6 inputs, but the data has 5");
    assert_int_equal(model_open(&m, &p.spec, LOSS_MSE, 6, 3, ROWS, 0, d, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the model has 8 outputs, but the data has 3");
    device_close(d);
    problem_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_loss_activation_and_depth),
        cmocka_unit_test(nothing_is_read_before_it_has_arrived),
        cmocka_unit_test(model_and_data_must_have_the_same_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
