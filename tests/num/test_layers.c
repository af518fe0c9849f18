/* Tests operations on tokens at odd sizes: results against double precision, gradients against differences,
 * and the same bits from every instruction set where that is promised. */
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
#include "trainer/device/cpu/cpu.h"

#define SETS 3

static const struct cpu_set *sets;
static int set_count;
static const int64_t contexts[] = {1, 7, 64, 129};
static const int64_t samples[] = {4, ((int64_t)1 << 40) + 5, 77};

static float *noise_array(size_t n, float scale, uint64_t seed)
{
    float *x = xcalloc(n + 16, sizeof(float));
    struct random r = random_stream(seed, n);
    for (size_t i = 0; i < n; i++)
        x[i] = scale * (2.0f * random_float(&r) - 1.0f);
    return x;
}

static struct device *open_device(int set)
{
    struct device *d = NULL;
    struct err e = {0};
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    cpu_of(d)->set = sets[set];
    return d;
}

static void close_device(struct device *d)
{
    struct err e = {0};
    assert_int_equal(d->ops->wait(d, &e), ERR_OK);
    device_close(d);
}

/* Keeps the result of the first instruction set, and compares those of the others with it. */
static void same_as_first(float **first, const float *x, size_t n)
{
    if (!*first) {
        *first = xcalloc(n, sizeof(float));
        memcpy(*first, x, n * sizeof(float));
    }
    assert_memory_equal(*first, x, n * sizeof(float));
}

static void all_near(const float *got, const double *want, size_t n, double tolerance, const char *what)
{
    double most = 0.0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * (most + 1e-3)))
            fail_msg("%s[%zu] = %.9g, should be %.9g", what, i, (double)got[i], want[i]);
}

static float float_of_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* A rounded result differs by half a unit of the eighth bit. */
static void all_near_as_bf16(const uint16_t *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(float_of_bf16(got[i]) - want[i]) <= fabsf(want[i]) * 0x1p-8f + 1e-5f))
            fail_msg("%s[%zu] = %.9g, should be %.9g", what, i, (double)float_of_bf16(got[i]),
                     (double)want[i]);
}

/* ---- residual and layer norm */

struct norm_case {
    struct device_tokens n;
    struct device_dropout dropout;
    float *residual, *delta, *bias, *gain, *shift, *dy, *below;
};

static void norm_reference(const struct norm_case *c, const double *residual, const double *delta, double *x,
                           double *y)
{
    int64_t width = c->n.width;
    for (int64_t t = 0; t < c->n.rows * c->n.context; t++) {
        double mean = 0.0, square = 0.0;
        for (int64_t j = 0; j < width; j++) {
            double keep = reference_kept(&c->dropout, t / c->n.context, t % c->n.context, j);
            x[t * width + j] = residual[t * width + j] + (delta[t * width + j] + (double)c->bias[j]) * keep;
            mean += x[t * width + j] / (double)width;
        }
        for (int64_t j = 0; j < width; j++)
            square += pow(x[t * width + j] - mean, 2.0) / (double)width;
        for (int64_t j = 0; j < width; j++)
            y[t * width + j] =
                (x[t * width + j] - mean) / sqrt(square + 1e-5) * (double)c->gain[j] + (double)c->shift[j];
    }
}

/* Returns a scalar loss whose gradients are dy for y and `below` for x: sum(dy y) + sum(below x). */
static double norm_loss(const struct norm_case *c, const double *residual, const double *delta, double *x,
                        double *y)
{
    double loss = 0.0;
    norm_reference(c, residual, delta, x, y);
    for (int64_t i = 0; i < c->n.rows * c->n.context * c->n.width; i++)
        loss += y[i] * (double)c->dy[i] + x[i] * (double)c->below[i];
    return loss;
}

static double slope_at(const struct norm_case *c, double *residual, double *delta, double *at, double *x,
                       double *y)
{
    const double h = 1e-5, kept = *at;
    *at = kept + h;
    double up = norm_loss(c, residual, delta, x, y);
    *at = kept - h;
    double down = norm_loss(c, residual, delta, x, y);
    *at = kept;
    return (up - down) / (2.0 * h);
}

static double *array_widened(const float *x, size_t n)
{
    double *w = xcalloc(n, sizeof(double));
    for (size_t i = 0; i < n; i++)
        w[i] = (double)x[i];
    return w;
}

/* The gradients of gain, shift and bias are sums over all tokens. y: the reference's output;
 * sums: what the device computed for gain, shift and bias. */
static void norm_sums_check(const struct norm_case *c, const double *y, const float *ddelta,
                            const float *sums)
{
    int64_t width = c->n.width, tokens = c->n.rows * c->n.context;
    for (int64_t j = 0; j < width; j++) {
        double gain = 0.0, shift = 0.0, bias = 0.0, size = 1.0;
        for (int64_t t = 0; t < tokens; t++) {
            double dy = (double)c->dy[t * width + j];
            gain += dy * (y[t * width + j] - (double)c->shift[j]) / (double)c->gain[j];
            shift += dy;
            bias += (double)ddelta[t * width + j];
            size += fabs(dy) * 4.0 + fabs((double)ddelta[t * width + j]);
        }
        assert_true(fabs(gain - (double)sums[j]) < 1e-5 * size);
        assert_true(fabs(shift - (double)sums[width + j]) < 1e-6 * size);
        assert_true(fabs(bias - (double)sums[2 * width + j]) < 1e-6 * size);
    }
}

/* Calls both operations again with `type` bf16: only y and ddelta are rounded. h and g: of the calls with floats. */
static void norm_rounds_to_bf16(struct device *d, const struct norm_case *c, struct device_norm h,
                                struct device_norm_grad g)
{
    const int64_t width = c->n.width, tokens = c->n.rows * c->n.context;
    const size_t n = (size_t)(tokens * width);
    const float *y = h.y, *ddelta = g.ddelta;
    double *want_x = array_widened(h.x, n), *want_dx = array_widened(g.dx, n),
           *want_sums = array_widened(g.dgain, (size_t)(3 * width));
    float *x = xcalloc(n, sizeof(float)), *dx = xcalloc(n, sizeof(float)),
          *sums = xcalloc((size_t)(3 * width), sizeof(float)),
          *stats = xcalloc((size_t)(2 * tokens), sizeof(float));
    uint16_t *half_y = xcalloc(n, sizeof(*half_y)), *half_ddelta = xcalloc(n, sizeof(*half_ddelta));
    memcpy(x, c->delta, n * sizeof(float));
    memcpy(dx, c->below, n * sizeof(float));
    h.type = g.type = DEVICE_BF16;
    h.delta = h.x = x;
    h.stats = stats;
    h.y = half_y;
    d->ops->norm(d, &h);
    g.x = x;
    g.stats = stats;
    g.dx = dx;
    g.dgain = sums;
    g.dshift = sums + width;
    g.dbias = sums + 2 * width;
    g.ddelta = half_ddelta;
    d->ops->norm_grad(d, &g);
    all_near(x, want_x, n, 1e-6, "x");
    all_near(dx, want_dx, n, 1e-5, "dx");
    all_near(sums, want_sums, (size_t)(3 * width), 1e-5, "sums");
    all_near_as_bf16(half_y, y, n, "y");
    all_near_as_bf16(half_ddelta, ddelta, n, "ddelta");
    void *all[] = {want_x, want_dx, want_sums, x, dx, sums, stats, half_y, half_ddelta};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void norm_on(int set, const struct norm_case *c, float *first[4])
{
    int64_t width = c->n.width, tokens = c->n.rows * c->n.context;
    size_t n = (size_t)(tokens * width);
    struct device *d = open_device(set);
    float *x = xcalloc(n, sizeof(float)), *y = xcalloc(n, sizeof(float)), *dx = xcalloc(n, sizeof(float));
    float *stats = xcalloc((size_t)(2 * tokens), sizeof(float)), *ddelta = xcalloc(n, sizeof(float));
    float *sums = xcalloc((size_t)(3 * width), sizeof(float));
    double *wx = xcalloc(n, sizeof(double)), *wy = xcalloc(n, sizeof(double));
    double *residual = array_widened(c->residual, n), *delta = array_widened(c->delta, n);
    memcpy(x, c->delta, n * sizeof(float));
    struct device_norm h = {.n = c->n,
                            .dropout = c->dropout,
                            .residual = c->residual,
                            .delta = x,
                            .bias = c->bias,
                            .gain = c->gain,
                            .shift = c->shift,
                            .x = x,
                            .stats = stats,
                            .y = y};
    d->ops->norm(d, &h);
    norm_reference(c, residual, delta, wx, wy);
    all_near(x, wx, n, 1e-6, "x");
    all_near(y, wy, n, 1e-5, "y");
    memcpy(dx, c->below, n * sizeof(float));
    struct device_norm_grad g = {.n = c->n,
                                 .dropout = c->dropout,
                                 .dy = c->dy,
                                 .x = x,
                                 .stats = stats,
                                 .gain = c->gain,
                                 .dx = dx,
                                 .dgain = sums,
                                 .dshift = sums + width,
                                 .dbias = sums + 2 * width,
                                 .ddelta = ddelta};
    d->ops->norm_grad(d, &g);
    double most = 0.0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)dx[i]));
    for (size_t i = 0; i < n; i += n / 37 + 1) {
        double want = slope_at(c, residual, delta, &residual[i], wx, wy);
        assert_true(fabs(want - (double)dx[i]) < 2e-5 * most);
        want = slope_at(c, residual, delta, &delta[i], wx, wy);
        assert_true(fabs(want - (double)ddelta[i]) < 2e-5 * most);
    }
    norm_reference(c, residual, delta, wx, wy);
    norm_sums_check(c, wy, ddelta, sums);
    norm_rounds_to_bf16(d, c, h, g);
    same_as_first(&first[0], y, n);
    same_as_first(&first[1], dx, n);
    same_as_first(&first[2], ddelta, n);
    same_as_first(&first[3], sums, (size_t)(3 * width));
    void *all[] = {x, y, dx, stats, ddelta, sums, wx, wy, residual, delta};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
    close_device(d);
}

static void residual_and_norm(void **state)
{
    static const int64_t widths[] = {5, 48, 64, 80};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(contexts); i++) {
        size_t n = (size_t)(3 * contexts[i] * widths[i]), width = (size_t)widths[i];
        float *first[4] = {NULL};
        struct norm_case c = {.n = {3, contexts[i], widths[i]},
                              .dropout = {i % 2 ? 0.2f : 0.0f, 0x1234567890abcdefu, samples},
                              .residual = noise_array(n, 2.0f, 1),
                              .delta = noise_array(n, 1.0f, 2),
                              .bias = noise_array(width, 1.0f, 3),
                              .gain = noise_array(width, 1.0f, 4),
                              .shift = noise_array(width, 1.0f, 5),
                              .dy = noise_array(n, 1.0f, 6),
                              .below = noise_array(n, 1.0f, 7)};
        for (size_t j = 0; j < width; j++)
            c.gain[j] += 1.5f;
        for (int set = 0; set < set_count; set++)
            norm_on(set, &c, first);
        float *all[] = {c.residual, c.delta, c.bias, c.gain, c.shift, c.dy, c.below};
        for (size_t j = 0; j < ARRAY_LEN(all); j++)
            free(all[j]);
        for (size_t j = 0; j < ARRAY_LEN(first); j++)
            free(first[j]);
    }
}

/* ---- bias and activation */

/* Rounds to bf16, so that products with the identity are exact. */
static void round_to_bf16(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0xffff0000u;
        memcpy(&x[i], &bits, sizeof(bits));
    }
}

/* z = x I + bias, a = f(z) */
static void linear_by_identity(struct device *d, enum device_activation kind, enum device_type type,
                               enum device_type kept, const float *x, const float *bias, int rows, int cols,
                               void *z, void *a)
{
    float *one = xcalloc((size_t)(cols * cols), sizeof(float));
    uint16_t *narrow = xcalloc((size_t)(rows * cols + cols * cols), sizeof(uint16_t));
    struct device_linear h = {.type = type,
                              .kept = kept,
                              .rows = rows,
                              .in = cols,
                              .out = cols,
                              .bias = bias,
                              .z = z,
                              .kind = kind,
                              .a = a};
    for (int i = 0; i < cols; i++)
        one[i * cols + i] = 1.0f;
    d->ops->narrow(d, narrow, x, (size_t)(rows * cols));
    d->ops->narrow(d, narrow + rows * cols, one, (size_t)(cols * cols));
    h.x = type == DEVICE_F32 ? (const void *)x : narrow;
    h.w = type == DEVICE_F32 ? (const void *)one : narrow + rows * cols;
    d->ops->linear(d, &h);
    free(one);
    free(narrow);
}

static void bias_and_activation(void **state)
{
    enum { ROWS = 70, COLS = 37, ALL = ROWS * COLS };
    float *start = noise_array(ALL, 6.0f, 8), *bias = noise_array(COLS, 1.0f, 9),
          *da = noise_array(ALL, 1.0f, 10);
    float z[ALL], a[ALL], dz[ALL], again[ALL], dbias[COLS];
    uint16_t narrow[ALL], narrow_again[ALL], narrow_dz[ALL];
    (void)state;
    round_to_bf16(start, ALL);
    for (int kind = DEVICE_RELU; kind <= DEVICE_GELU_TANH; kind++) {
        float *first[3] = {NULL};
        for (int set = 0; set < set_count; set++) {
            struct device *d = open_device(set);
            double want[COLS] = {0};
            memset(dbias, 0, sizeof(dbias));
            linear_by_identity(d, (enum device_activation)kind, DEVICE_F32, DEVICE_F32, start, bias, ROWS,
                               COLS, z, a);
            memcpy(dz, da, sizeof(dz)); /* in place */
            d->ops->bias_activate_grad(d, (enum device_activation)kind, DEVICE_F32, DEVICE_F32, dz, again,
                                       dbias, dz, z, ROWS, COLS);
            assert_memory_equal(a, again, sizeof(a));
            for (int i = 0; i < ALL; i++) {
                double x = (double)start[i] + (double)bias[i % COLS], h = 1e-6;
                double value = reference_activation((enum device_activation)kind, x);
                double slope = (reference_activation((enum device_activation)kind, x + h) -
                                reference_activation((enum device_activation)kind, x - h)) /
                               (2.0 * h);
                assert_true(fabs((double)a[i] - value) < 2e-6 * (1.0 + fabs(x)));
                assert_true(fabs((double)dz[i] - (double)da[i] * slope) < 5e-6);
                want[i % COLS] += (double)dz[i];
            }
            for (int j = 0; j < COLS; j++)
                assert_true(fabs((double)dbias[j] - want[j]) < 1e-5);
            same_as_first(&first[0], a, ALL);
            same_as_first(&first[1], dz, ALL);
            same_as_first(&first[2], dbias, COLS);
            /* bf16 must give the same values, rounded */
            linear_by_identity(d, (enum device_activation)kind, DEVICE_BF16, DEVICE_F32, start, bias, ROWS,
                               COLS, z, narrow);
            all_near_as_bf16(narrow, a, ALL, "a");
            d->ops->bias_activate_grad(d, (enum device_activation)kind, DEVICE_BF16, DEVICE_F32, narrow_dz,
                                       narrow_again, again, da, z, ROWS, COLS);
            assert_memory_equal(narrow, narrow_again, sizeof(narrow));
            all_near_as_bf16(narrow_dz, dz, ALL, "dz");
            close_device(d);
        }
        for (size_t j = 0; j < ARRAY_LEN(first); j++)
            free(first[j]);
    }
    free(start);
    free(bias);
    free(da);
}

/* ---- embedding: sums of a few floats, compared exactly */

static void embedding_sums_are_exact(void **state)
{
    enum { ROWS = 3, CONTEXT = 5, WIDTH = 37, VOCAB = 4, TOKENS = ROWS * CONTEXT };
    float *wte = noise_array(VOCAB * WIDTH, 1.0f, 1), *wpe = noise_array(CONTEXT * WIDTH, 1.0f, 2);
    float *grad = noise_array(TOKENS * WIDTH, 1.0f, 3), x[TOKENS * WIDTH], dx[TOKENS * WIDTH];
    int32_t token[TOKENS];
    (void)state;
    for (int t = 0; t < TOKENS; t++)
        token[t] = t * t % VOCAB;
    for (int set = 0; set < set_count; set++)
        for (int threads = 1; threads <= 2; threads++) {
            struct device *d = open_device(set);
            float dwte[VOCAB * WIDTH] = {0}, dwpe[CONTEXT * WIDTH] = {0}, t1[VOCAB * WIDTH] = {0},
                               p1[CONTEXT * WIDTH] = {0};
            struct device_embedding h = {{ROWS, CONTEXT, WIDTH}, token, VOCAB, {0.25f, 42, samples}};
            cpu_threads_open(&cpu_of(d)->threads, threads);
            d->ops->embed(d, &h, wte, wpe, x);
            memcpy(dx, grad, sizeof(dx));
            d->ops->embed_grad(d, &h, dwte, dwpe, dx);
            for (int t = 0; t < TOKENS; t++)
                for (int j = 0; j < WIDTH; j++) {
                    int64_t at = t % CONTEXT * WIDTH + j;
                    float keep = (float)reference_kept(&h.dropout, t / CONTEXT, t % CONTEXT, j);
                    assert_true(x[t * WIDTH + j] == (wte[token[t] * WIDTH + j] + wpe[at]) * keep);
                    t1[token[t] * WIDTH + j] += grad[t * WIDTH + j] * keep;
                    p1[at] += grad[t * WIDTH + j] * keep;
                }
            assert_memory_equal(dwte, t1, sizeof(dwte));
            assert_memory_equal(dwpe, p1, sizeof(dwpe));
            close_device(d);
        }
    free(wte);
    free(wpe);
    free(grad);
}

/* Over a million elements, the right share is dropped, and no element depends on its neighbour. */
static void dropout_is_fair(void **state)
{
    enum { WIDTH = 1024, CONTEXT = 512 };
    static float x[WIDTH * CONTEXT];
    struct device *d = open_device(set_count - 1);
    float *wte = xcalloc(WIDTH, sizeof(float)), *wpe = xcalloc(WIDTH * CONTEXT, sizeof(float));
    int32_t *token = xcalloc(CONTEXT, sizeof(int32_t));
    struct device_embedding h = {{1, CONTEXT, WIDTH}, token, 1, {0.1f, 9, samples}};
    double dropped = 0.0, both = 0.0, below = 0.0, all = WIDTH * CONTEXT;
    (void)state;
    for (int j = 0; j < WIDTH; j++)
        wte[j] = 1.0f;
    d->ops->embed(d, &h, wte, wpe, x);
    for (int i = 0; i < WIDTH * CONTEXT; i++) {
        assert_true(x[i] == 0.0f || x[i] == 1.0f / (1.0f - 0.1f));
        dropped += x[i] == 0.0f;
        both += x[i] == 0.0f && x[(i + 1) % (WIDTH * CONTEXT)] == 0.0f;
        below += x[i] == 0.0f && x[(i + WIDTH) % (WIDTH * CONTEXT)] == 0.0f;
    }
    assert_true(fabs(dropped / all - 0.1) < 5.0 * sqrt(0.09 / all));
    assert_true(fabs(both / all - 0.01) < 5.0 * sqrt(0.01 / all));
    assert_true(fabs(below / all - 0.01) < 5.0 * sqrt(0.01 / all));
    free(wte);
    free(wpe);
    free(token);
    close_device(d);
}

/* ---- attention */

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

static bool multiplies_bf16(void)
{
    struct device *d = open_device(set_count - 1);
    const bool half = cpu_of(d)->half != NULL;
    close_device(d);
    return half;
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

/* The product adds the bias, and rounds once. Sums of what it writes are those of the same floats. */
static void a_biased_product_rounds_to_bf16(void **state)
{
    enum { ROWS = 70, COLS = 37, ALL = ROWS * COLS };
    float z[ALL], sums[COLS] = {0}, want[COLS] = {0};
    uint16_t half[ALL], rounded[ALL];
    (void)state;
    if (!multiplies_bf16()) {
        print_message("this CPU does not multiply bf16\n");
        skip();
    }
    float *x = noise_array(ALL, 6.0f, 8), *bias = noise_array(COLS, 1.0f, 9);
    struct device *d = open_device(set_count - 1);
    round_to_bf16(x, ALL);
    linear_by_identity(d, DEVICE_RELU, DEVICE_BF16, DEVICE_F32, x, bias, ROWS, COLS, z, NULL);
    linear_by_identity(d, DEVICE_RELU, DEVICE_BF16, DEVICE_BF16, x, bias, ROWS, COLS, half, NULL);
    d->ops->narrow(d, rounded, z, ALL);
    assert_memory_equal(half, rounded, sizeof(half));
    for (int i = 0; i < ALL; i++)
        z[i] = float_of_bf16(half[i]);
    d->ops->bias_grad(d, DEVICE_BF16, sums, half, ROWS, COLS);
    d->ops->bias_grad(d, DEVICE_F32, want, z, ROWS, COLS);
    assert_memory_equal(sums, want, sizeof(sums));
    free(x);
    free(bias);
    close_device(d);
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
        cmocka_unit_test(residual_and_norm),
        cmocka_unit_test(bias_and_activation),
        cmocka_unit_test(embedding_sums_are_exact),
        cmocka_unit_test(dropout_is_fair),
        cmocka_unit_test(attention_matches_the_reference),
        cmocka_unit_test(a_biased_product_rounds_to_bf16),
        cmocka_unit_test(attention_with_bf16_is_near_attention_with_floats),
        cmocka_unit_test(attention_reads_nothing_stale),
    };
    sets = cpu_sets(&set_count);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
