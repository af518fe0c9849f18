/* Tests the optimizers against the published update rules in double precision, the same bits from every
 * instruction set, and the values of the schedule at its ends. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/random.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/muon.h"
#include "trainer/optim/optim.h"
#include "trainer/optim/schedule.h"

#define N 131
#define STEPS 50

struct reference {
    double p[N], m[N], v[N];
};

static void sgd_step(struct reference *r, const struct train_spec *s, const float *g, double lr)
{
    for (int i = 0; i < N; i++) {
        double d = (double)g[i] + s->optimizer.weight_decay * r->p[i];
        r->m[i] = s->optimizer.momentum * r->m[i] + d;
        r->p[i] -= lr * (s->optimizer.nesterov ? d + s->optimizer.momentum * r->m[i] : r->m[i]);
    }
}

static void adamw_step(struct reference *r, const struct train_spec *s, const float *g, double lr, int t)
{
    double b1 = s->optimizer.betas[0], b2 = s->optimizer.betas[1];
    for (int i = 0; i < N; i++) {
        double d = (double)g[i];
        r->m[i] = b1 * r->m[i] + (1.0 - b1) * d;
        r->v[i] = b2 * r->v[i] + (1.0 - b2) * d * d;
        double m = r->m[i] / (1.0 - pow(b1, t)), v = r->v[i] / (1.0 - pow(b2, t));
        r->p[i] -= lr * s->optimizer.weight_decay * r->p[i] + lr * m / (sqrt(v) + s->optimizer.eps);
    }
}

static void optimizer_check(const struct train_spec *spec)
{
    struct device *d = NULL;
    struct optim *o = NULL;
    struct err e = {0};
    struct reference r = {{0}, {0}, {0}};
    float p[N], g[N];
    struct random random = random_stream(9, 0);
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    optim_open(&o, spec, N, d);
    assert_int_equal(optim_alloc(o, &e), ERR_OK);
    for (int i = 0; i < N; i++)
        r.p[i] = (double)(p[i] = 2.0f * random_float(&random) - 1.0f);
    for (int t = 1; t <= STEPS; t++) {
        for (int i = 0; i < N; i++)
            g[i] = p[i] + random_float(&random) - 0.5f;
        optim_update(o, p, g, spec->optimizer.lr, false);
        if (spec->optimizer.type == OPTIMIZER_SGD)
            sgd_step(&r, spec, g, spec->optimizer.lr);
        else
            adamw_step(&r, spec, g, spec->optimizer.lr, t);
    }
    for (int i = 0; i < N; i++)
        assert_true(fabs((double)p[i] - r.p[i]) < 2e-5);
    assert_int_equal(o->steps, STEPS);
    optim_free(o);
    device_close(d);
}

static void updates_follow_the_rules(void **state)
{
    struct train_spec s = {0};
    (void)state;
    s.optimizer.type = OPTIMIZER_SGD;
    s.optimizer.lr = 0.05;
    optimizer_check(&s);
    s.optimizer.weight_decay = 0.1;
    s.optimizer.momentum = 0.9;
    optimizer_check(&s);
    s.optimizer.nesterov = true;
    optimizer_check(&s);
    s.optimizer.type = OPTIMIZER_ADAMW;
    s.optimizer.betas[0] = 0.9;
    s.optimizer.betas[1] = 0.99;
    s.optimizer.eps = 1e-8;
    s.optimizer.lr = 0.01;
    optimizer_check(&s);
}

static void gradients_are_clipped_to_the_norm(void **state)
{
    struct train_spec s = {0};
    struct device *d = NULL;
    struct optim *o = NULL;
    struct err e = {0};
    float g[4] = {3.0f, 0.0f, 4.0f, 0.0f};
    (void)state;
    s.optimizer.clip = 1.0;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    optim_open(&o, &s, 4, d);
    assert_int_equal(optim_alloc(o, &e), ERR_OK);
    assert_int_equal(o->state_count, 0); /* SGD without momentum has no state */
    float p[4] = {0};
    optim_update(o, p, g, 1.0, false);
    assert_true(optim_norm(o) == 5.0);
    assert_true(fabs((double)p[0] + 0.6) < 1e-6 && fabs((double)p[2] + 0.8) < 1e-6);
    float small[4] = {0.3f, 0.0f, 0.4f, 0.0f}, q[4] = {0};
    optim_update(o, q, small, 1.0, false); /* the norm is below the limit, so gradients are not clipped */
    assert_true(fabs(optim_norm(o) - 0.5) < 1e-6);
    assert_true(q[0] == -small[0] && q[2] == -small[2]);
    o->clip = 0.0;
    memset(q, 0, sizeof(q));
    optim_update(o, q, g, 1.0, true); /* the norm is computed, but gradients are not clipped */
    assert_true(optim_norm(o) == 5.0);
    assert_true(q[0] == -3.0f && q[2] == -4.0f);
    optim_free(o);
    device_close(d);
}

/* Adjacent exempt ranges become one run, so that an update needs few operations. */
static void exempt_from_decay(void **state)
{
    struct train_spec s = {0};
    struct device *d = NULL;
    struct optim *o = NULL;
    struct err e = {0};
    float p[64], g[64] = {0};
    (void)state;
    s.optimizer.weight_decay = 0.5;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    optim_open(&o, &s, 64, d);
    optim_exempt(o, 0, 16);
    optim_exempt(o, 16, 10);
    optim_matrix(o, 30, 2, 4, 1, false); /* SGD updates matrices like other parameters */
    optim_exempt(o, 48, 16);
    assert_int_equal(optim_alloc(o, &e), ERR_OK);
    assert_int_equal(o->run_count, 3);
    for (int i = 0; i < 64; i++)
        p[i] = 1.0f;
    optim_update(o, p, g, 1.0, false);
    for (int i = 0; i < 64; i++)
        assert_true(p[i] == (i < 26 || i >= 48 ? 1.0f : 0.5f));
    optim_free(o);
    device_close(d);
}

/* Each rank applies the update itself, so machines of different kinds must get the same bits. */
static void same_bits_on_every_instruction_set(void **state)
{
    float first[4][N], now[4][N];
    int count = 0;
    const struct cpu_set *sets = cpu_sets(&count);
    (void)state;
    for (int k = 0; k < count; k++) {
        struct random r = random_stream(1, 2);
        const float scale = 0.7f;
        struct device_adamw a = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, &scale, NULL};
        struct device_sgd s = {1e-2f, 0.9f, 0.01f, true, &scale, NULL};
        for (int i = 0; i < 4 * N; i++)
            now[i / N][i % N] = random_float(&r);
        for (int t = 0; t < 20; t++) {
            sets[k].kernels->adamw(&a, now[0], now[1], now[2], now[3], NULL, N);
            sets[k].kernels->sgd(&s, now[0], now[1], now[2], NULL, N);
        }
        if (k == 0)
            memcpy(first, now, sizeof(now));
        assert_memory_equal(first, now, sizeof(now));
    }
}

/* Values whose narrowing is special: ties that go to the even neighbour, numbers that are not finite, and denormal ones. */
static void special_floats(float *x, size_t n)
{
    static const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x7f7fffff,
                                    0x7f800000, 0xff800000, 0x7f800001, 0xffc00000, 0x7fbfffff,
                                    0x00000001, 0x00008000, 0x80018000, 0x80000000};
    for (size_t i = 0; i < n && i < 3 * ARRAY_LEN(bits); i += 3)
        memcpy(&x[i], &bits[i / 3], sizeof(*x));
}

/* To nearest, a tie to the even neighbour; a NaN becomes a quiet one. */
static uint16_t narrow_reference(float x)
{
    uint32_t bits, rest;
    memcpy(&bits, &x, sizeof(bits));
    rest = bits & 0xffff;
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits >> 16) + (rest > 0x8000 || (rest == 0x8000 && (bits >> 16 & 1))));
}

/* An update that narrows gives the bits of an update and of a pass that narrows, whatever the size, and writes no further. */
static void narrowed_check(const struct cpu_kernels *k, size_t n, const struct device_adamw *a,
                           const struct device_sgd *s)
{
    float two[2][4][N];
    uint16_t half[N + 1], separate[N + 1];
    struct random r = random_stream(n, 3);
    for (int i = 0; i < 4 * N; i++)
        two[0][i / N][i % N] = random_float(&r);
    special_floats(two[0][0], N);
    memcpy(two[1], two[0], sizeof(two[0]));
    memset(half, 0x55, sizeof(half));
    memset(separate, 0x55, sizeof(separate));
    for (int fused = 0; fused < 2; fused++) {
        float(*x)[N] = two[fused];
        if (a)
            k->adamw(a, x[0], x[1], x[2], x[3], fused ? half : NULL, n);
        else
            k->sgd(s, x[0], x[1], s->momentum > 0.0f ? x[2] : NULL, fused ? half : NULL, n);
    }
    k->narrow(separate, two[0][0], n);
    assert_memory_equal(two[0], two[1], sizeof(two[0]));
    assert_memory_equal(half, separate, sizeof(half));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(half[i], narrow_reference(two[1][0][i]));
}

static void an_update_narrows_as_a_pass_after_it(void **state)
{
    int count = 0;
    const struct cpu_set *sets = cpu_sets(&count);
    (void)state;
    for (int k = 0; k < count; k++)
        for (size_t n = 0; n <= N; n++) {
            const float scale = 0.7f;
            const struct device_adamw a = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, &scale, NULL};
            /* Nothing changes, so the special numbers stay what they are. */
            const struct device_adamw none = {0.0f, 0.9f, 0.999f, 1e-8f, 0.0f, 0.1f, 0.001f, NULL, NULL};
            const struct device_sgd s[] = {{1e-2f, 0.9f, 0.01f, true, &scale, NULL},
                                           {1e-2f, 0.9f, 0.01f, false, NULL, NULL},
                                           {1e-2f, 0.0f, 0.01f, false, &scale, NULL},
                                           {0.0f, 0.0f, 0.0f, false, NULL, NULL}};
            narrowed_check(sets[k].kernels, n, &a, NULL);
            narrowed_check(sets[k].kernels, n, &none, NULL);
            for (size_t i = 0; i < ARRAY_LEN(s); i++)
                narrowed_check(sets[k].kernels, n, NULL, &s[i]);
        }
}

/* ---- muon */

/* A tensor of a test: rows, columns, matrices side by side, and whether each is (out,in). rows 0: a vector
 * of `cols`. */
struct muon_tensor {
    int64_t rows, cols;
    int side_by_side;
    bool out_first;
};
static const struct muon_tensor muon_tensors[] = {
    {40, 24, 1, false},                                          /* tall */
    {0, 24, 1, false},   {24, 40, 1, true},                      /* wide */
    {48, 144, 3, false}, {0, 144, 1, false},   {33, 7, 1, true}, /* odd */
    {17, 65, 1, false},  {1, 50, 1, false},    {50, 1, 1, false},
    {64, 64, 1, false},  {129, 130, 1, false}, {0, 5, 1, false},
};
#define MUON_FLOATS 40000

static size_t muon_tensor_count(const struct muon_tensor *t)
{
    return (size_t)((t->rows ? t->rows : 1) * t->cols);
}

static size_t muon_offset(size_t tensor)
{
    size_t at = 0;
    for (size_t i = 0; i < tensor; i++)
        at += (muon_tensor_count(&muon_tensors[i]) + 15) / 16 * 16;
    return at;
}

static struct train_spec muon_spec(void)
{
    struct train_spec s = {0};
    s.optimizer.type = OPTIMIZER_MUON;
    s.optimizer.lr = 0.02;
    s.optimizer.momentum = 0.95;
    s.optimizer.weight_decay = 0.1;
    s.optimizer.adamw_lr = 3e-3;
    s.optimizer.betas[0] = 0.9;
    s.optimizer.betas[1] = 0.99;
    s.optimizer.eps = 1e-8;
    s.optimizer.clip = 1.0;
    return s;
}

static void muon_describe(struct optim *o)
{
    for (size_t i = 0; i < ARRAY_LEN(muon_tensors); i++) {
        const struct muon_tensor *t = &muon_tensors[i];
        if (t->rows)
            optim_matrix(o, muon_offset(i), t->rows, t->cols, t->side_by_side, t->out_first);
        else
            optim_exempt(o, muon_offset(i), (size_t)t->cols);
    }
}

static struct optim *muon_open(const struct train_spec *spec, struct device *d)
{
    struct err e = {0};
    struct optim *o = NULL;
    optim_open(&o, spec, muon_offset(ARRAY_LEN(muon_tensors)), d);
    muon_describe(o);
    assert_int_equal(optim_alloc(o, &e), ERR_OK);
    return o;
}

/* Also fills the gaps between tensors, so that the tests find updates that write there. */
static void muon_fill(float *x, uint64_t seed)
{
    struct random r = random_stream(seed, 7);
    for (size_t i = 0; i < MUON_FLOATS; i++)
        x[i] = 2.0f * random_float(&r) - 1.0f;
}

/* x (rows,cols) = 3.4445 x + (-4.7750 g + 2.0315 g g) x, where g = x x^T, five times after x / |x| */
static void newton_schulz(double *x, int64_t rows, int64_t cols)
{
    double *g = xcalloc((size_t)(rows * rows), sizeof(*g)), *b = xcalloc((size_t)(rows * rows), sizeof(*b));
    double *y = xcalloc((size_t)(rows * cols), sizeof(*y)), norm = 0.0;
    for (int64_t i = 0; i < rows * cols; i++)
        norm += x[i] * x[i];
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] /= sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; step++) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < rows; j++) {
                g[i * rows + j] = 0.0;
                for (int64_t k = 0; k < cols; k++)
                    g[i * rows + j] += x[i * cols + k] * x[j * cols + k];
            }
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < rows; j++) {
                double square = 0.0;
                for (int64_t k = 0; k < rows; k++)
                    square += g[i * rows + k] * g[k * rows + j];
                b[i * rows + j] = -4.7750 * g[i * rows + j] + 2.0315 * square;
            }
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                y[i * cols + j] = 3.4445 * x[i * cols + j];
                for (int64_t k = 0; k < rows; k++)
                    y[i * cols + j] += b[i * rows + k] * x[k * cols + j];
            }
        memcpy(x, y, (size_t)(rows * cols) * sizeof(*x));
    }
    free(g);
    free(b);
    free(y);
}

/* Updates matrix `index` of the tensor. clip: the factor by which clipping multiplies gradients. The iteration always
 * uses x x^T. (The optimizer transposes x if that is smaller, with the same result.) */
static void muon_step(const struct train_spec *s, const struct muon_tensor *t, int index, double clip,
                      double *p, double *m, const float *g)
{
    int64_t width = t->cols / t->side_by_side, out = t->out_first ? t->rows : width,
            in = t->out_first ? width : t->rows;
    double *x = xcalloc((size_t)(t->rows * width), sizeof(*x)), mu = s->optimizer.momentum;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < width; c++) {
            size_t at = (size_t)(r * t->cols + index * width + c);
            m[at] = mu * m[at] + clip * (double)g[at];
            x[r * width + c] = clip * (double)g[at] + mu * m[at];
        }
    newton_schulz(x, t->rows, width);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < width; c++) {
            size_t at = (size_t)(r * t->cols + index * width + c);
            p[at] -= s->optimizer.lr * s->optimizer.weight_decay * p[at] +
                     s->optimizer.lr * sqrt(fmax(1.0, (double)out / (double)in)) * x[r * width + c];
        }
    free(x);
}

static void vector_step(const struct train_spec *s, size_t n, double clip, int t, double *p, double *m,
                        double *v, const float *g)
{
    double b1 = s->optimizer.betas[0], b2 = s->optimizer.betas[1];
    for (size_t i = 0; i < n; i++) {
        double d = clip * (double)g[i];
        m[i] = b1 * m[i] + (1.0 - b1) * d;
        v[i] = b2 * v[i] + (1.0 - b2) * d * d;
        p[i] -= s->optimizer.adamw_lr * (m[i] / (1.0 - pow(b1, t))) /
                (sqrt(v[i] / (1.0 - pow(b2, t))) + s->optimizer.eps);
    }
}

/* Makes one step in double precision. Returns the largest difference between its parameters and `now`. */
static double muon_tensor_distance(const struct train_spec *s, size_t tensor, double clip, int step,
                                   double *p, double *m, double *v, const float *g, const float *now)
{
    const struct muon_tensor *t = &muon_tensors[tensor];
    size_t from = muon_offset(tensor), n = muon_tensor_count(t);
    double most = 0.0;
    for (int i = 0; t->rows && i < t->side_by_side; i++)
        muon_step(s, t, i, clip, p + from, m + from, g + from);
    if (!t->rows)
        vector_step(s, n, clip, step, p + from, m + from, v + from, g + from);
    for (size_t i = from; i < from + n; i++)
        most = fmax(most, fabs(p[i] - (double)now[i]));
    return most;
}

static void muon_follows_the_rules(void **state)
{
    struct train_spec s = muon_spec();
    struct device *d = NULL;
    struct err e = {0};
    float *p = xcalloc(MUON_FLOATS, sizeof(*p)), *g = xcalloc(MUON_FLOATS, sizeof(*g));
    double *rp = xcalloc(MUON_FLOATS, sizeof(*rp)), *rm = xcalloc(MUON_FLOATS, sizeof(*rm)),
           *rv = xcalloc(MUON_FLOATS, sizeof(*rv));
    (void)state;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 1, &e), ERR_OK);
    struct optim *o = muon_open(&s, d);
    assert_true(o->count <= MUON_FLOATS);
    muon_fill(p, 1);
    for (size_t i = 0; i < MUON_FLOATS; i++)
        rp[i] = (double)p[i];
    for (int step = 1; step <= 6; step++) {
        double squares = 0.0;
        muon_fill(g, (uint64_t)step + 1);
        for (size_t i = 0; i < o->count; i++)
            squares += (double)g[i] * (double)g[i];
        optim_update(o, p, g, s.optimizer.lr, false);
        double clip = fmin(1.0, s.optimizer.clip / (sqrt(squares) + 1e-6));
        for (size_t i = 0; i < ARRAY_LEN(muon_tensors); i++) {
            double away = muon_tensor_distance(&s, i, clip, step, rp, rm, rv, g, p);
            if (away > 3e-6)
                fail_msg("tensor %zu, step %d: %.1e from the reference", i, step, away);
        }
    }
    free(p);
    free(g);
    free(rp);
    free(rm);
    free(rv);
    optim_free(o);
    device_close(d);
}

/* All singular values of an update are near 1, whatever those of the gradient are. Therefore the length of each row
 * is also near 1. */
static void muon_updates_are_nearly_orthogonal(void **state)
{
    enum { ROWS = 24, COLS = 60 };
    float p[ROWS * COLS] = {0}, g[ROWS * COLS];
    struct train_spec s = muon_spec();
    struct device *d = NULL;
    struct optim *o = NULL;
    struct err e = {0};
    struct random r = random_stream(4, 4);
    (void)state;
    s.optimizer.lr = 1.0;
    s.optimizer.weight_decay = s.optimizer.clip = 0.0;
    for (int i = 0; i < ROWS * COLS; i++)
        g[i] = (random_float(&r) - 0.5f) * (float)(1 + i / COLS);
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 1, &e), ERR_OK);
    optim_open(&o, &s, ROWS * COLS, d);
    optim_matrix(o, 0, ROWS, COLS, 1, true);
    assert_int_equal(optim_alloc(o, &e), ERR_OK);
    optim_update(o, p, g, 1.0, false);
    for (int i = 0; i < ROWS; i++) {
        double length = 0.0;
        for (int k = 0; k < COLS; k++)
            length += (double)p[i * COLS + k] * (double)p[i * COLS + k];
        assert_true(length > 0.4 && length < 1.6); /* the iteration leaves singular values of 0.7 to 1.2 */
    }
    memset(g, 0, sizeof(g)); /* without gradient and momentum there must be no division by 0, and no update */
    memset(p, 0, sizeof(p));
    memset(o->state, 0, o->floats * sizeof(float));
    optim_update(o, p, g, 1.0, false);
    for (int i = 0; i < ROWS * COLS; i++)
        assert_true(p[i] == 0.0f);
    optim_free(o);
    device_close(d);
}

static void muon_run(struct optim *o, float *p, float *g, int from, int to)
{
    for (int step = from; step < to; step++) {
        muon_fill(g, (uint64_t)step + 50);
        optim_update(o, p, g, 0.02, false);
    }
}

/* The bits are the same with any number of threads, with precision bf16, and after the moments were copied to another
 * optimizer. */
static void muon_gives_the_same_bits(void **state)
{
    struct err e = {0};
    float *first = xcalloc(MUON_FLOATS, sizeof(*first)), *p = xcalloc(MUON_FLOATS, sizeof(*p)),
          *g = xcalloc(MUON_FLOATS, sizeof(*g));
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct train_spec s = muon_spec();
        struct device *d = NULL;
        s.precision = threads == 3 ? PRECISION_BF16 : PRECISION_FP32;
        assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, threads, &e), ERR_OK);
        struct optim *o = muon_open(&s, d), *second = muon_open(&s, d);
        muon_fill(p, 1);
        muon_run(o, p, g, 0, 3);
        memcpy(second->state, o->state, o->floats * sizeof(float));
        second->steps = o->steps;
        muon_run(second, p, g, 3, 6);
        if (threads == 1)
            memcpy(first, p, MUON_FLOATS * sizeof(*p));
        assert_memory_equal(first, p, MUON_FLOATS * sizeof(*p));
        muon_fill(p, 1);
        muon_run(o, p, g, 3,
                 6); /* with other moments the same steps give other bits, so the moments matter */
        assert_memory_not_equal(first, p, MUON_FLOATS * sizeof(*p));
        optim_free(o);
        optim_free(second);
        device_close(d);
    }
    free(first);
    free(p);
    free(g);
}

static void muon_same_bits_on_every_instruction_set(void **state)
{
    int count = 0;
    const struct cpu_set *sets = cpu_sets(&count);
    float *first = xcalloc(MUON_FLOATS, sizeof(*first)), *p = xcalloc(MUON_FLOATS, sizeof(*p)),
          *g = xcalloc(MUON_FLOATS, sizeof(*g)), *m = xcalloc(MUON_FLOATS, sizeof(*m));
    const int64_t shapes[][2] = {{5, 3}, {33, 70}, {130, 64}, {40, 900}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int k = 0; k < count; k++) {
            struct device_matrix t = {16, shapes[i][0], shapes[i][1], shapes[i][1] + 4, 1.5f};
            struct device_muon h = {.lr = 0.02f, .momentum = 0.95f, .weight_decay = 0.1f};
            float *room = aligned_alloc(64, cpu_muon_floats(&t) * sizeof(float));
            muon_fill(p, 1);
            muon_fill(g, 2);
            muon_fill(m, 3);
            assert_non_null(room);
            sets[k].muon->update(&h, &t, p, g, m, room);
            if (k == 0)
                memcpy(first, p, MUON_FLOATS * sizeof(*p));
            assert_memory_equal(first, p, MUON_FLOATS * sizeof(*p));
            free(room);
        }
    free(first);
    free(p);
    free(g);
    free(m);
}

/* With [first, first + count) of the arrays, or all of them: updates write exactly these parameters as bf16. */
static void optimizer_narrows(enum optimizer_type type, bool part, int threads)
{
    struct train_spec s = muon_spec();
    struct device *d = NULL;
    struct err e = {0};
    const size_t blocks[] = {muon_offset(3), muon_offset(5), muon_offset(10)};
    const size_t first = part ? blocks[0] : 0, all = muon_offset(ARRAY_LEN(muon_tensors));
    const size_t end = part ? blocks[2] : all;
    float *p = xcalloc(MUON_FLOATS, sizeof(*p)), *g = xcalloc(MUON_FLOATS, sizeof(*g));
    uint16_t *half = xcalloc(all, sizeof(*half)), *separate = xcalloc(all, sizeof(*separate));
    struct optim *o = NULL;
    s.optimizer.type = type;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, threads, &e), ERR_OK);
    optim_open(&o, &s, all, d);
    muon_describe(o);
    if (part)
        optim_take_part(o, blocks, ARRAY_LEN(blocks) - 1);
    assert_int_equal(optim_alloc(o, &e), ERR_OK);
    muon_fill(p, 1);
    assert_int_equal(optim_narrow_to(o, half), !part);
    for (int step = 0; step < 2; step++) {
        muon_fill(g, (uint64_t)step + 2);
        optim_put_squares(o, 3.0);
        optim_update(o, p, g, 0.02, false);
        d->ops->narrow(d, separate + first, p + first, end - first);
        assert_memory_equal(half, separate, all * sizeof(*half));
    }
    assert_false(optim_narrow_to(o, NULL));
    optim_update(o, p, g, 0.02, false);
    assert_memory_equal(half, separate, all * sizeof(*half));
    optim_free(o);
    device_close(d);
    free(p);
    free(g);
    free(half);
    free(separate);
}

static void every_optimizer_narrows_what_it_updates(void **state)
{
    static const enum optimizer_type types[] = {OPTIMIZER_SGD, OPTIMIZER_ADAMW, OPTIMIZER_MUON};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            optimizer_narrows(types[i], false, threads);
            optimizer_narrows(types[i], true, threads);
        }
}

/* Muon keeps one moment for a matrix and two for a vector. No memory is allocated for other moments. */
static void muon_moments(void **state)
{
    struct train_spec s = muon_spec();
    struct device *d = NULL;
    struct err e = {0};
    struct optim *o = NULL;
    (void)state;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 1, &e), ERR_OK);
    optim_open(&o, &s, 16 + 32 + 16 + 48, d);
    optim_exempt(o, 0, 10);
    optim_matrix(o, 16, 4, 8, 2, false);
    optim_exempt(o, 48, 16);
    optim_matrix(o, 64, 6, 8, 1, false);
    assert_int_equal(optim_alloc(o, &e), ERR_OK);
    assert_int_equal(o->floats, o->count + 16 + 16);
    assert_int_equal(o->matrix_count, 3);
    assert_int_equal(o->matrices[0].offset, 64); /* matrices are ordered by work, the largest first */
    assert_int_equal(optim_moment_at(o, 0, 16), 16);
    assert_int_equal(optim_moment_at(o, 1, 16), OPTIM_NONE);
    assert_int_equal(optim_moment_at(o, 2, 16), OPTIM_NONE);
    assert_int_equal(optim_moment_at(o, 0, 48), OPTIM_NONE);
    assert_int_equal(optim_moment_at(o, 1, 48), 48);
    assert_int_equal(optim_moment_at(o, 2, 48), o->count + 16);
    assert_int_equal(optim_moment_at(o, 2, 0), o->count);
    optim_free(o);
    device_close(d);
}

static void schedules_follow_their_formulas(void **state)
{
    struct train_spec s = {0};
    (void)state;
    s.optimizer.lr = 1.0;
    s.schedule.min_lr = 0.1;
    assert_true(schedule_lr(&s, 500, 0.5) == 1.0);
    s.schedule.type = SCHEDULE_LINEAR;
    assert_true(fabs(schedule_lr(&s, 500, 0.5) - 0.55) < 1e-12);
    assert_true(fabs(schedule_lr(&s, 1000, 1.0) - 0.1) < 1e-12);
    s.schedule.type = SCHEDULE_COSINE;
    assert_true(fabs(schedule_lr(&s, 500, 0.5) - 0.55) < 1e-12);
    assert_true(fabs(schedule_lr(&s, 250, 0.25) - (0.1 + 0.45 * (1.0 + sqrt(0.5)))) < 1e-12);
    assert_true(fabs(schedule_lr(&s, 2000, 2.0) - 0.1) < 1e-12);
    s.schedule.warmup = 10;
    assert_true(fabs(schedule_lr(&s, 0, 0.0) - 0.1) < 1e-12);
    assert_true(fabs(schedule_lr(&s, 4, 0.0) - 0.5) < 1e-12);
    assert_true(schedule_lr(&s, 9, 0.0) == 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_follow_the_rules),
        cmocka_unit_test(gradients_are_clipped_to_the_norm),
        cmocka_unit_test(exempt_from_decay),
        cmocka_unit_test(same_bits_on_every_instruction_set),
        cmocka_unit_test(muon_follows_the_rules),
        cmocka_unit_test(muon_updates_are_nearly_orthogonal),
        cmocka_unit_test(muon_gives_the_same_bits),
        cmocka_unit_test(muon_same_bits_on_every_instruction_set),
        cmocka_unit_test(an_update_narrows_as_a_pass_after_it),
        cmocka_unit_test(every_optimizer_narrows_what_it_updates),
        cmocka_unit_test(muon_moments),
        cmocka_unit_test(schedules_follow_their_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
