/* Tests the CPU kernels: their results are near those in double precision, and every instruction set of this machine gives the same bits.
 * Also tests the memory of the CPU device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/random.h"
#include "trainer/device/cpu/cpu.h"

#define N 1037 /* not a multiple of any vector width */

static const struct cpu_kernels *tables[3];
static int table_count;

static void find_tables(void)
{
    const struct cpu_set *sets = cpu_sets(&table_count);
    for (int k = 0; k < table_count; k++)
        tables[k] = sets[k].kernels;
}

static void noise_fill(float *x, size_t n, float scale, uint64_t seed)
{
    struct random r = random_stream(seed, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = scale * (2.0f * random_float(&r) - 1.0f);
}

static void values_near(const float *got, double (*want)(double), const float *x, double absolute)
{
    for (int i = 0; i < N; i++)
        if (fabs((double)got[i] - want((double)x[i])) > absolute * (1.0 + fabs((double)x[i])))
            fail_msg("f(%.9g) = %.9g, should be %.9g", (double)x[i], (double)got[i], want((double)x[i]));
}

static double relu_of(double x)
{
    return x > 0.0 ? x : 0.0;
}
static double gelu_of(double x)
{
    return 0.5 * x * erfc(-x / sqrt(2.0));
}
static double gelu_tanh(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
static double relu_slope(double x)
{
    return x > 0.0;
}
static double gelu_slope(double x)
{
    return (gelu_of(x + 1e-6) - gelu_of(x - 1e-6)) / 2e-6;
}
static double gelu_tanh_slope(double x)
{
    return (gelu_tanh(x + 1e-6) - gelu_tanh(x - 1e-6)) / 2e-6;
}
static double tanh_slope(double x)
{
    return 1.0 - tanh(x) * tanh(x);
}

static void activations_match_the_reference(void **state)
{
    static double (*const value[])(double) = {[DEVICE_RELU] = relu_of,
                                              [DEVICE_GELU] = gelu_of,
                                              [DEVICE_TANH] = tanh,
                                              [DEVICE_GELU_TANH] = gelu_tanh};
    static double (*const slope[])(double) = {[DEVICE_RELU] = relu_slope,
                                              [DEVICE_GELU] = gelu_slope,
                                              [DEVICE_TANH] = tanh_slope,
                                              [DEVICE_GELU_TANH] = gelu_tanh_slope};
    float x[N], y[N], ones[N], first[N];
    (void)state;
    for (int i = 0; i < N; i++)
        ones[i] = 1.0f;
    for (int kind = DEVICE_RELU; kind <= DEVICE_GELU_TANH; kind++) {
        for (int k = 0; k < table_count; k++) {
            noise_fill(x, N, kind == DEVICE_RELU ? 100.0f : 12.0f, 1);
            tables[k]->activate((enum device_activation)kind, y, x, N);
            values_near(y, value[kind], x, 4e-7);
            if (k == 0)
                memcpy(first, y, sizeof(y));
            assert_memory_equal(first, y, sizeof(y));
        }
        for (int k = 0; k < table_count; k++) {
            tables[k]->activate_grad((enum device_activation)kind, y, ones, x, N);
            values_near(y, slope[kind], x, 2e-6);
            if (k == 0)
                memcpy(first, y, sizeof(y));
            assert_memory_equal(first, y, sizeof(y));
        }
    }
}

static void extremes_stay_finite_and_nan_shows(void **state)
{
    float x[4] = {-1e30f, 1e30f, 88.5f, NAN}, y[4];
    (void)state;
    for (int k = 0; k < table_count; k++) {
        tables[k]->activate(DEVICE_TANH, y, x, 4);
        assert_true(y[0] == -1.0f && y[1] == 1.0f && y[2] == 1.0f && isnan(y[3]));
        tables[k]->activate(DEVICE_RELU, y, x, 4);
        assert_true(y[0] == 0.0f && isnan(y[3]));
    }
}

static double reference_loss(const float *row, int64_t n, int32_t label)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++)
        sum += exp((double)row[j] - (double)row[label]);
    return log(sum);
}

static void tallies_add(struct device_tally *sum, const struct device_tally *rows, int count)
{
    for (int i = 0; i < count; i++) {
        sum->loss += rows[i].loss;
        sum->correct += rows[i].correct;
    }
}

static void cross_entropy(void **state)
{
    enum { ROWS = 33, CLASSES = 10, STRIDE = 13 };
    float x[ROWS * STRIDE], work[ROWS * STRIDE], dx[ROWS * STRIDE], first[ROWS * STRIDE];
    int32_t label[ROWS];
    (void)state;
    /* also fills the padding of each row, which must not affect the result */
    noise_fill(x, ROWS * STRIDE, 20.0f, 2);
    for (int i = 0; i < ROWS; i++)
        label[i] = i % CLASSES;
    for (int k = 0; k < table_count; k++) {
        struct device_tally tally = {0}, rows[ROWS];
        double want = 0.0, right = 0.0;
        memcpy(work, x, sizeof(x));
        struct device_classes h = {.type = DEVICE_F32,
                                   .kept = DEVICE_F32,
                                   .rows = ROWS,
                                   .classes = CLASSES,
                                   .stride = STRIDE,
                                   .label = label,
                                   .x = work,
                                   .dx = dx,
                                   .scale = 0.5f,
                                   .weight = 1.0};
        tables[k]->cross_entropy(&h, 0, ROWS, rows);
        tallies_add(&tally, rows, ROWS);
        for (int i = 0; i < ROWS; i++) {
            const float *row = x + i * STRIDE;
            bool best = true;
            want += reference_loss(row, CLASSES, label[i]);
            for (int j = 0; j < CLASSES; j++) {
                double p = exp(-reference_loss(row, CLASSES, j));
                best = best && row[j] <= row[label[i]];
                assert_true(fabs((double)dx[i * STRIDE + j] - 0.5 * (p - (j == label[i]))) < 1e-6);
            }
            for (int j = CLASSES; j < STRIDE; j++)
                assert_true(dx[i * STRIDE + j] == 0.0f);
            right += best;
        }
        assert_true(fabs(tally.loss - want) < 1e-5 * want);
        assert_true(tally.correct == right);
        if (k == 0)
            memcpy(first, dx, sizeof(dx));
        assert_memory_equal(first, dx, sizeof(dx));
    }
}

static void a_nan_in_a_row_makes_its_loss_nan(void **state)
{
    static const float bad[] = {NAN, INFINITY};
    (void)state;
    for (size_t b = 0; b < 2; b++) {
        for (int at = 0; at < 3; at++) {
            float x[3] = {1.0f, 2.0f, 3.0f};
            int32_t label = 1;
            struct device_tally tally;
            x[at] = bad[b];
            struct device_classes h = {
                .classes = 3, .stride = 3, .label = &label, .x = x, .scale = 1.0f, .weight = 1.0};
            tables[0]->cross_entropy(&h, 0, 1, &tally);
            assert_false(isfinite(tally.loss));
        }
    }
}

static void sum_of_squares(void **state)
{
    float *x = xcalloc(100003, sizeof(float));
    double want = 0.0, first = 0.0;
    (void)state;
    noise_fill(x, 100003, 3.0f, 4);
    for (int i = 0; i < 100003; i++)
        want += (double)x[i] * (double)x[i];
    for (int k = 0; k < table_count; k++) {
        double got = tables[k]->sum_squares(x, 100003);
        assert_true(fabs(got - want) < 1e-6 * want);
        first = k ? first : got;
        assert_true(got == first);
    }
    free(x);
}

/* Bias, its gradient and mse: short enough to compare exactly. */
static void rows_and_columns(void **state)
{
    enum { ROWS = 3, COLS = 21 };
    float x[ROWS * COLS], y[ROWS * COLS], dx[ROWS * COLS], b[COLS], db[COLS];
    (void)state;
    for (int k = 0; k < table_count; k++) {
        struct device_tally tally = {0}, rows[ROWS];
        double want = 0.0;
        noise_fill(x, ROWS * COLS, 1.0f, 5);
        noise_fill(b, COLS, 1.0f, 6);
        memcpy(y, x, sizeof(x));
        tables[k]->bias(y, b, ROWS, COLS);
        tables[k]->column_sums(db, x, ROWS, COLS);
        tables[k]->mse(dx, x, y, ROWS, COLS, 2.0f, rows);
        tallies_add(&tally, rows, ROWS);
        for (int j = 0; j < COLS; j++) {
            assert_true(db[j] == (x[j] + x[COLS + j]) + x[2 * COLS + j]);
            for (int i = 0; i < ROWS; i++) {
                assert_true(y[i * COLS + j] == x[i * COLS + j] + b[j]);
                double diff = (double)x[i * COLS + j] - (double)y[i * COLS + j];
                assert_true(fabs((double)dx[i * COLS + j] - diff * 4.0 / COLS) < 1e-7);
                want += diff * diff / COLS;
            }
        }
        assert_true(fabs(tally.loss - want) < 1e-6 * want);
    }
}

/* ---- any number of threads */

enum { TOKENS = 1500, WIDTH = 40, CLASSES = 77, COPIED = (3 << 20) + 5 };
struct results {
    float logits[TOKENS * CLASSES], dx[TOKENS * CLASSES], mse_dx[TOKENS * WIDTH], embedded[TOKENS * WIDTH],
        x[TOKENS * WIDTH], y[TOKENS * WIDTH], stats[2 * TOKENS], biased[TOKENS * WIDTH];
    struct device_tally entropy, mse;
    char copied[COPIED + 1], zeroed[COPIED + 1];
};

static void losses_run(struct device *d, struct results *r, const float *noise)
{
    static int32_t label[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        label[i] = i * 7 % CLASSES;
    memcpy(r->logits, noise, sizeof(r->logits));
    struct device_classes h = {.rows = TOKENS,
                               .classes = CLASSES,
                               .stride = CLASSES,
                               .label = label,
                               .x = r->logits,
                               .dx = r->dx,
                               .scale = 0.5f,
                               .weight = 0.3,
                               .tally = &r->entropy};
    d->ops->cross_entropy(d, &h);
    d->ops->mse(d, r->mse_dx, noise, noise + 1, TOKENS, WIDTH, 0.5f, &r->mse);
}

static void layers_run(struct device *d, struct results *r, const float *noise)
{
    static int32_t token[TOKENS];
    static const int64_t sample[3] = {4, 9, 2};
    const struct device_tokens n = {3, TOKENS / 3, WIDTH};
    for (int i = 0; i < TOKENS; i++)
        token[i] = i * 11 % 50;
    struct device_embedding e = {.n = n, .token = token, .vocab = 50, .dropout = {0.2f, 5, sample}};
    d->ops->embed(d, &e, noise, noise + 50 * WIDTH, r->embedded);
    struct device_norm h = {.n = n,
                            .dropout = {0.2f, 6, sample},
                            .residual = noise,
                            .delta = noise + 3,
                            .bias = noise,
                            .gain = noise + 5,
                            .shift = noise + 7,
                            .x = r->x,
                            .stats = r->stats,
                            .y = r->y};
    d->ops->norm(d, &h);
    struct device_linear l = {
        .rows = TOKENS, .in = 1, .out = WIDTH, .x = noise, .w = noise, .bias = noise + 9, .z = r->biased};
    d->ops->linear(d, &l);
}

static void bytes_run(struct device *d, struct results *r)
{
    memset(r->zeroed, 1, sizeof(r->zeroed));
    d->ops->zero(d, r->zeroed, COPIED);
    for (int i = 0; i <= COPIED; i++)
        assert_int_equal(r->zeroed[i], i == COPIED);
    d->ops->copy(d, r->copied, r->dx, sizeof(r->dx));
    assert_memory_equal(r->copied, r->dx, sizeof(r->dx));
    d->ops->copy(d, r->copied, r->zeroed, COPIED);
    assert_memory_equal(r->copied, r->zeroed, COPIED);
    assert_int_equal(r->copied[COPIED], 0);
}

/* The tallies are those of at most 32 parts, added up in order: the bits of jobs that run since before. */
static void tally_check(const struct results *r, const float *noise)
{
    static float work[TOKENS * CLASSES];
    static struct device_tally rows[TOKENS];
    static int32_t label[TOKENS];
    struct device_tally all = {0};
    for (int i = 0; i < TOKENS; i++)
        label[i] = i * 7 % CLASSES;
    memcpy(work, noise, sizeof(work));
    struct device_classes h = {.rows = TOKENS,
                               .classes = CLASSES,
                               .stride = CLASSES,
                               .label = label,
                               .x = work,
                               .scale = 0.5f,
                               .weight = 0.3};
    tables[0]->cross_entropy(&h, 0, TOKENS, rows);
    for (int p = 0; p < 32; p++) {
        struct device_tally part = {0};
        tallies_add(&part, rows + TOKENS * p / 32, TOKENS * (p + 1) / 32 - TOKENS * p / 32);
        tallies_add(&all, &part, 1);
    }
    assert_memory_equal(&all, &r->entropy, sizeof(all));
}

static void bits_do_not_depend_on_the_threads(void **state)
{
    static const int threads[] = {1, 2, 3, 5, 40};
    struct results *first = xcalloc(1, sizeof(*first)), *now = xcalloc(1, sizeof(*now));
    float *noise = xcalloc(TOKENS * CLASSES, sizeof(*noise));
    (void)state;
    noise_fill(noise, TOKENS * CLASSES, 3.0f, 8);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        struct results *r = i ? now : first;
        struct device *d = NULL;
        struct err e;
        memset(r, 0, sizeof(*r));
        assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, threads[i], &e), ERR_OK);
        losses_run(d, r, noise);
        layers_run(d, r, noise);
        bytes_run(d, r);
        assert_int_equal(d->ops->wait(d, &e), ERR_OK);
        tally_check(r, noise);
        assert_memory_equal(first, r, sizeof(*r));
        device_close(d);
    }
    free(first);
    free(now);
    free(noise);
}

/* Whether huge pages were asked for at this address. /proc/self/smaps shows that as the flag "hg". */
static bool asks_for_huge_pages(const void *at)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512];
    bool here = false, asks = false;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        char *rest;
        unsigned long first = strtoul(line, &rest, 16);
        if (*rest == '-')
            here = first <= (unsigned long)at && (unsigned long)at < strtoul(rest + 1, NULL, 16);
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            asks = strstr(line, " hg") != NULL;
    }
    fclose(f);
    return asks;
}

static void large_arrays_ask_for_huge_pages(void **state)
{
    const size_t large = (size_t)9 << 20, small = 5000;
    struct device *d = NULL;
    struct err e;
    void *p, *q;
    (void)state;
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK))
        skip(); /* a kernel without them */
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 1, &e), ERR_OK);
    assert_int_equal(d->ops->alloc(d, large, &p, &e), ERR_OK);
    assert_int_equal(d->ops->alloc(d, small, &q, &e), ERR_OK);
    assert_true(asks_for_huge_pages((char *)p + large / 2));
    assert_false(asks_for_huge_pages(q));
    d->ops->free(d, p);
    d->ops->free(d, q);
    device_close(d);
}

static char *alloc_zeros(struct device *d, size_t bytes)
{
    struct err e;
    void *p = NULL;
    assert_int_equal(d->ops->alloc(d, bytes, &p, &e), ERR_OK);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(((char *)p)[i], 0);
    return p;
}

/* glibc returns large arrays to the system at first. After a larger one was freed it keeps them, and the next array gets the old bytes. */
static void memory_is_zero_although_it_was_used_before(void **state)
{
    const size_t large = (size_t)9 << 20;
    struct device *d = NULL;
    struct err e;
    (void)state;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 1, &e), ERR_OK);
    d->ops->free(d, alloc_zeros(d, 2 * large));
    char *p = alloc_zeros(d, large), *above = alloc_zeros(d, large);
    memset(p, 0xff, large);
    d->ops->free(d, p);
    d->ops->free(d, alloc_zeros(d, large));
    d->ops->free(d, above);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_arrays_ask_for_huge_pages),
        cmocka_unit_test(memory_is_zero_although_it_was_used_before),
        cmocka_unit_test(activations_match_the_reference),
        cmocka_unit_test(extremes_stay_finite_and_nan_shows),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(a_nan_in_a_row_makes_its_loss_nan),
        cmocka_unit_test(sum_of_squares),
        cmocka_unit_test(rows_and_columns),
        cmocka_unit_test(bits_do_not_depend_on_the_threads),
    };
    find_tables();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
