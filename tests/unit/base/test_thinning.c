/* Thinning keeps what a picture of a curve must show. */
#include "tests/unit/base/check.h"

#include <math.h>

#include "base/mem.h"
#include "base/thinning.h"

#define POINTS 8000
#define BUCKETS 100

static double values[POINTS];
static bool keep[POINTS];

static void extremes_remain(void **state)
{
    (void)state;
    for (size_t i = 0; i < POINTS; i++)
        values[i] = 1.0 + 0.001 * sin((double)i);
    values[1234] = 50;
    values[1235] = -50;
    values[4321] = NAN;
    values[5555] = INFINITY;
    const size_t kept = thinning_choose(values, POINTS, BUCKETS, keep);
    assert_true(keep[1234] && keep[1235] && keep[4321] && keep[5555] && keep[POINTS - 1]);
    assert_true(kept <= THINNING_KEPT * BUCKETS && kept >= BUCKETS);
    for (size_t b = 0; b < BUCKETS; b++) { /* each bucket keeps its own extremes and its last point */
        const size_t first = b * POINTS / BUCKETS, end = (b + 1) * POINTS / BUCKETS;
        double low = INFINITY, high = -INFINITY, kept_low = INFINITY, kept_high = -INFINITY;
        for (size_t i = first; i < end; i++) {
            low = fmin(low, values[i]);
            kept_low = keep[i] ? fmin(kept_low, values[i]) : kept_low;
            high = fmax(high, values[i]);
            kept_high = keep[i] ? fmax(kept_high, values[i]) : kept_high;
        }
        assert_true(low == kept_low && high == kept_high && keep[end - 1]);
    }
}

static void few_points_all_remain(void **state)
{
    (void)state;
    assert_int_equal(thinning_choose(values, 10, 10, keep), 10);
    assert_int_equal(thinning_choose(values, 10, 800, keep), 10);
    assert_int_equal(thinning_choose(values, 10, 0, keep), 10);
    assert_int_equal(thinning_choose(values, 0, 5, keep), 0);
    for (size_t i = 0; i < 10; i++)
        values[i] = NAN;
    assert_int_equal(thinning_choose(values, 10, 1, keep), 2); /* the first and the last */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extremes_remain),
        cmocka_unit_test(few_points_all_remain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
