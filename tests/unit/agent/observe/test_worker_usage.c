/* Rates between two samples of a worker. */
#include "tests/unit/base/check.h"

#include <math.h>

#include "daemon/agent/observe/worker_usage.h"

static bool usage_after(struct worker_usage *u, int64_t at, int64_t cpu_ms, int64_t bytes, struct usage *out)
{
    struct worker_sample s = {
        .there = true, .used_cpu_ms = cpu_ms, .memory_bytes = 4096, .read_bytes = bytes, .write_bytes = bytes};

    return worker_usage_update(u, &s, at, out);
}

static void rates_count_from_the_last_sample(void **state)
{
    struct worker_usage u = {0};
    struct usage out;

    (void)state;
    assert_false(usage_after(&u, 1000, 70000, 5000, &out)); /* one sample says nothing */
    assert_true(usage_after(&u, 6000, 79900, 15000, &out));
    assert_true(fabs(out.values[USAGE_CPU] - 1.98) < 1e-9);
    assert_true(out.values[USAGE_READ] == 2000 && out.values[USAGE_WRITE] == 2000);
    assert_true(out.values[USAGE_MEMORY] == 4096);
    assert_int_equal(out.gpus, 0);
    assert_true(usage_after(&u, 11000, 79900, 15000, &out));
    assert_true(out.values[USAGE_CPU] == 0 && out.values[USAGE_READ] == 0);
}

static void a_total_that_fell_or_is_unknown_gives_no_rate(void **state)
{
    struct worker_usage u = {0};
    struct usage out;

    (void)state;
    assert_false(usage_after(&u, 1000, 70000, 5000, &out));
    assert_true(usage_after(&u, 6000, 60000, -1, &out)); /* a child ended without its parent's wait */
    assert_true(isnan(out.values[USAGE_CPU]) && isnan(out.values[USAGE_READ]));
    assert_true(usage_after(&u, 11000, 65000, 9000, &out));
    assert_true(out.values[USAGE_CPU] == 1 && isnan(out.values[USAGE_READ]));
}

static void a_worker_that_has_ended_uses_nothing(void **state)
{
    struct worker_usage u = {0};
    struct usage out;
    struct worker_sample gone = {.there = false};

    (void)state;
    assert_false(usage_after(&u, 1000, 70000, 5000, &out));
    assert_false(worker_usage_update(&u, &gone, 6000, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_count_from_the_last_sample),
        cmocka_unit_test(a_total_that_fell_or_is_unknown_gives_no_rate),
        cmocka_unit_test(a_worker_that_has_ended_uses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
