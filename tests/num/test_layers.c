/* Tests operations on tokens, but for attention, at odd sizes: results against double precision, gradients against differences,
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
#include "layers.h"
#include "trainer/device/cpu/cpu.h"

#define SETS 3

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residual_and_norm),
        cmocka_unit_test(bias_and_activation),
        cmocka_unit_test(embedding_sums_are_exact),
        cmocka_unit_test(dropout_is_fair),
        cmocka_unit_test(a_biased_product_rounds_to_bf16),
    };
    sets = cpu_sets(&set_count);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
