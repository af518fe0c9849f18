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

static void check(const struct train_spec *spec)
{
    struct device *d = NULL;
    struct optim *o = NULL;
    struct err e = {0};
    struct reference r = {{0}, {0}, {0}};
    float p[N], g[N];
    struct random random = random_stream(9, 0);
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    assert_int_equal(optim_open(&o, spec, N, d, &e), ERR_OK);
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
    check(&s);
    s.optimizer.weight_decay = 0.1;
    s.optimizer.momentum = 0.9;
    check(&s);
    s.optimizer.nesterov = true;
    check(&s);
    s.optimizer.type = OPTIMIZER_ADAMW;
    s.optimizer.betas[0] = 0.9;
    s.optimizer.betas[1] = 0.99;
    s.optimizer.eps = 1e-8;
    s.optimizer.lr = 0.01;
    check(&s);
}

static void clipping(void **state)
{
    struct train_spec s = {0};
    struct device *d = NULL;
    struct optim *o = NULL;
    struct err e = {0};
    float g[4] = {3.0f, 0.0f, 4.0f, 0.0f};
    (void)state;
    s.optimizer.clip = 1.0;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    assert_int_equal(optim_open(&o, &s, 4, d, &e), ERR_OK);
    assert_int_equal(o->state_count, 0); /* no momentum, no state */
    float p[4] = {0};
    optim_update(o, p, g, 1.0, false);
    assert_true(optim_norm(o) == 5.0);
    assert_true(fabs((double)p[0] + 0.6) < 1e-6 && fabs((double)p[2] + 0.8) < 1e-6);
    float small[4] = {0.3f, 0.0f, 0.4f, 0.0f}, q[4] = {0};
    optim_update(o, q, small, 1.0, false); /* nothing to clip */
    assert_true(fabs(optim_norm(o) - 0.5) < 1e-6);
    assert_true(q[0] == -small[0] && q[2] == -small[2]);
    o->clip = 0.0;
    memset(q, 0, sizeof(q));
    optim_update(o, q, g, 1.0, true); /* measured, not clipped */
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
    assert_int_equal(optim_open(&o, &s, 64, d, &e), ERR_OK);
    optim_exempt(o, 0, 16);
    optim_exempt(o, 16, 10);
    optim_exempt(o, 48, 16);
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
        struct device_adamw a = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, &scale};
        struct device_sgd s = {1e-2f, 0.9f, 0.01f, true, &scale};
        for (int i = 0; i < 4 * N; i++)
            now[i / N][i % N] = random_float(&r);
        for (int t = 0; t < 20; t++) {
            sets[k].kernels->adamw(&a, now[0], now[1], now[2], now[3], N);
            sets[k].kernels->sgd(&s, now[0], now[1], now[2], N);
        }
        if (k == 0)
            memcpy(first, now, sizeof(now));
        assert_memory_equal(first, now, sizeof(now));
    }
}

static void schedules(void **state)
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
        cmocka_unit_test(clipping),
        cmocka_unit_test(exempt_from_decay),
        cmocka_unit_test(same_bits_on_every_instruction_set),
        cmocka_unit_test(schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
