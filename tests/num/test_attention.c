/* Tests attention at odd sizes against double precision, and its gradients against differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/random.h"
#include "gpt_reference.h"
#include "layers.h"

static void attention_reference(const struct device_attention *h, const double *qkv, double *o, double *lse)
{
    int64_t width = h->n.width, size = width / h->heads, context = h->n.context;
    double *w = xcalloc((size_t)context, sizeof(double));
    memset(o, 0, (size_t)(h->n.rows * context * width) * sizeof(double));
    for (int64_t b = 0; b < h->n.rows; b++)
        for (int64_t head = 0; head < h->heads; head++)
            for (int64_t q = 0; q < context; q++) {
                const double *at = qkv + b * context * 3 * width + head * size;
                double sum = 0.0;
                for (int64_t k = 0; k <= q; k++) {
                    double score = 0.0;
                    for (int64_t j = 0; j < size; j++)
                        score += at[q * 3 * width + j] * at[k * 3 * width + width + j];
                    sum += w[k] = exp(score / sqrt((double)size));
                }
                lse[(b * h->heads + head) * context + q] = log(sum);
                for (int64_t k = 0; k <= q; k++)
                    for (int64_t j = 0; j < size; j++)
                        o[(b * context + q) * width + head * size + j] +=
                            w[k] / sum * reference_kept(&h->dropout, b, head * context + q, k) *
                            at[k * 3 * width + 2 * width + j];
            }
    free(w);
}

static double attention_loss(const struct device_attention *h, const double *qkv, const float *d_o, double *o,
                             double *lse)
{
    double loss = 0.0;
    attention_reference(h, qkv, o, lse);
    for (int64_t i = 0; i < h->n.rows * h->n.context * h->n.width; i++)
        loss += o[i] * (double)d_o[i];
    return loss;
}

/* Rounds an array to bf16, in place. Returns it as bf16. */
static uint16_t *array_rounded(struct device *d, float *x, size_t n)
{
    uint16_t *half = xcalloc(n, sizeof(*half));
    d->ops->narrow(d, half, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = float_of_bf16(half[i]);
    return half;
}

/* Calls forward and backward with qkv, o and their gradients as bf16. The values of qkv and d_o are bf16 already. */
static void attention_kept_bf16(struct device *d, const struct device_attention *h, float *qkv, float *d_o,
                                float *o, float *dqkv)
{
    const size_t n = (size_t)(h->n.rows * h->n.context * h->n.width);
    uint16_t *half = array_rounded(d, qkv, 3 * n), *half_d_o = array_rounded(d, d_o, n),
             *half_o = xcalloc(n, sizeof(*half_o)), *half_grad = xcalloc(3 * n, sizeof(*half_grad));
    struct device_attention k = *h;
    k.kept = DEVICE_BF16;
    k.qkv = half;
    k.o = half_o;
    d->ops->attention(d, &k);
    d->ops->attention_grad(d, &k, half_d_o, half_grad);
    for (size_t i = 0; i < n; i++)
        o[i] = float_of_bf16(half_o[i]);
    for (size_t i = 0; i < 3 * n; i++)
        dqkv[i] = float_of_bf16(half_grad[i]);
    free(half);
    free(half_d_o);
    free(half_o);
    free(half_grad);
}

/* Factors that are rounded to bf16 have eight bits. If h.kept is bf16, qkv and d_o are rounded first. */
static void attention_on(int set, struct device_attention h, float *qkv, float *d_o)
{
    const double near = h.type == DEVICE_BF16 ? 1e-2 : 2e-6, steep = h.type == DEVICE_BF16 ? 1e-2 : 1e-5;
    size_t n = (size_t)(h.n.rows * h.n.context * h.n.width),
           scores = (size_t)(h.n.rows * h.heads * h.n.context);
    struct device *d = open_device(set);
    float *dqkv = xcalloc(3 * n, sizeof(float));
    const bool half = h.kept == DEVICE_BF16;
    h.kept = DEVICE_F32;
    h.lse = xcalloc(scores, sizeof(float));
    h.o = xcalloc(n, sizeof(float));
    if (half)
        attention_kept_bf16(d, &h, qkv, d_o, h.o, dqkv);
    double *want = xcalloc(n, sizeof(double)), *lse = xcalloc(scores, sizeof(double)),
           *w = array_widened(qkv, 3 * n);
    struct random r = random_stream(1, n);
    h.qkv = qkv;
    attention_reference(&h, w, want, lse);
    if (!half)
        d->ops->attention(d, &h);
    all_near(h.o, want, n, near, "o");
    all_near(h.lse, lse, scores, near, "lse");
    if (!half)
        d->ops->attention_grad(d, &h, d_o, dqkv);
    double most = 0.0;
    for (size_t i = 0; i < 3 * n; i++)
        most = fmax(most, fabs((double)dqkv[i]));
    const int slopes = (h.n.context > 64 ? 6 : 24) / (h.type == DEVICE_BF16 ? 6 : 1);
    for (int k = 0; k < slopes; k++) {
        size_t i = (size_t)random_u64(&r) % (3 * n);
        const double step = 1e-5, kept = w[i];
        w[i] = kept + step;
        double up = attention_loss(&h, w, d_o, want, lse);
        w[i] = kept - step;
        double slope = (up - attention_loss(&h, w, d_o, want, lse)) / (2.0 * step);
        w[i] = kept;
        if (!(fabs(slope - (double)dqkv[i]) < steep * most))
            fail_msg("%s: dqkv[%zu] = %.9g, differences say %.9g", sets[set].name, i, (double)dqkv[i], slope);
    }
    free(dqkv);
    free(want);
    free(lse);
    free(w);
    free(h.o);
    free(h.lse);
    close_device(d);
}

static void attention_matches_the_reference(void **state)
{
    static const struct {
        int64_t width, heads;
    } sizes[] = {{48, 3}, {48, 1}, {20, 5}, {27, 3}, {64, 1}, {80, 1}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (size_t c = 0; c < ARRAY_LEN(contexts); c++) {
            struct device_attention h = {.n = {2, contexts[c], sizes[i].width}, .heads = sizes[i].heads};
            size_t n = (size_t)(2 * contexts[c] * sizes[i].width);
            float *qkv = noise_array(3 * n, 2.0f, i), *d_o = noise_array(n, 1.0f, c);
            if (c % 2)
                h.dropout = (struct device_dropout){0.3f, 5, samples};
            for (int set = 0; set < set_count; set++)
                attention_on(set, h, qkv, d_o);
            h.type = DEVICE_BF16;
            if (multiplies_bf16()) {
                attention_on(set_count - 1, h, qkv, d_o);
                h.kept = DEVICE_BF16;
                attention_on(set_count - 1, h, qkv, d_o);
            }
            free(qkv);
            free(d_o);
        }
}

static double array_away(const float *a, const float *b, size_t n)
{
    double away = 0.0, all = 0.0;
    for (size_t i = 0; i < n; i++) {
        away += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(away / all);
}

/* A mean error of bf16's rounding, with many keys and with a last strip that is not whole. With one thread and with three. */
static void attention_compare_types(void)
{
    const int64_t rows = 2, context = 210, width = 96, heads = 3;
    size_t n = (size_t)(rows * context * width);
    float *qkv = noise_array(3 * n, 2.0f, 7), *d_o = noise_array(n, 1.0f, 8), *first = NULL,
          *first_grad = NULL;
    float *o[2] = {xcalloc(n, sizeof(float)), xcalloc(n, sizeof(float))};
    float *dqkv[2] = {xcalloc(3 * n, sizeof(float)), xcalloc(3 * n, sizeof(float))},
          *lse = xcalloc((size_t)(rows * heads * context), sizeof(float));
    for (int threads = 1; threads <= 3; threads += 2) {
        struct device *d = NULL;
        struct err e = {0};
        assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, threads, &e), ERR_OK);
        for (int half = 0; half < 2; half++) {
            struct device_attention h = {.n = {rows, context, width},
                                         .heads = heads,
                                         .qkv = qkv,
                                         .o = o[half],
                                         .lse = lse,
                                         .type = half ? DEVICE_BF16 : DEVICE_F32,
                                         .dropout = {0.2f, 5, samples}};
            d->ops->attention(d, &h);
            d->ops->attention_grad(d, &h, d_o, dqkv[half]);
        }
        double away = array_away(o[1], o[0], n), grad_away = array_away(dqkv[1], dqkv[0], 3 * n);
        if (away < 1e-4 || grad_away < 1e-4)
            fail_msg("the factors are not rounded to bf16: %g, %g", away, grad_away);
        if (!(away < 5e-3 && grad_away < 8e-3))
            fail_msg("o differs by %g, dqkv by %g", away, grad_away);
        same_as_first(&first, o[1], n);
        same_as_first(&first_grad, dqkv[1], 3 * n);
        close_device(d);
    }
    for (int half = 0; half < 2; half++) {
        free(o[half]);
        free(dqkv[half]);
    }
    free(first);
    free(first_grad);
    free(lse);
    free(qkv);
    free(d_o);
}

static void attention_with_bf16_is_near_attention_with_floats(void **state)
{
    (void)state;
    if (!multiplies_bf16()) {
        print_message("this CPU does not multiply bf16\n");
        skip();
    }
    attention_compare_types();
}

/* Values that an earlier, longer call left in the scratch memory must not matter, even if they are NaN. */
static void attention_reads_nothing_stale(void **state)
{
    (void)state;
    for (int run = 0; run <= set_count; run++) {
        enum device_type type = run < set_count ? DEVICE_F32 : DEVICE_BF16;
        struct device *d = open_device(run < set_count ? run : set_count - 1);
        struct device_sizes sizes = {{2, 70, 36}, 3, 10, 10, type, false};
        struct err e = {0};
        size_t n = 2 * 70 * 36;
        float *qkv = noise_array(3 * n, 1.0f, 3), *o = xcalloc(n, sizeof(float)), lse[2 * 3 * 70],
              *first = NULL;
        float *dqkv = xcalloc(3 * n, sizeof(float)), *first_grad = NULL;
        struct device_attention h = {.n = sizes.n, .heads = 3, .type = type, .qkv = qkv, .o = o, .lse = lse};
        assert_int_equal(d->ops->reserve(d, &sizes, &e), ERR_OK);
        for (int round = 0; round < 2; round++) {
            d->ops->attention(d, &h);
            d->ops->attention_grad(d, &h, qkv, dqkv);
            same_as_first(&first, o, n);
            same_as_first(&first_grad, dqkv, 3 * n);
            memset(cpu_of(d)->scratch.memory, 0xff, cpu_of(d)->scratch.bytes);
        }
        free(first);
        free(first_grad);
        free(qkv);
        free(o);
        free(dqkv);
        close_device(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_the_reference),
        cmocka_unit_test(attention_with_bf16_is_near_attention_with_floats),
        cmocka_unit_test(attention_reads_nothing_stale),
    };
    sets = cpu_sets(&set_count);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
