/* The usage of a rank with several GPUs, and the names that only nodes may use. */
#include "tests/unit/base/check.h"

#include <math.h>

#include "base/worker/usage.h"

static void gpus_of_a_rank_are_summed_up(void **state)
{
    struct usage u;

    (void)state;
    usage_init(&u);
    assert_true(isnan(u.values[USAGE_GPU]) && isnan(u.gpu_least));
    usage_add_gpu(&u, 0.9, 100, 500, 60);
    usage_add_gpu(&u, 0.1, 50, 100, 70);
    assert_int_equal(u.gpus, 2);
    assert_true(fabs(u.values[USAGE_GPU] - 0.5) < 1e-9);
    assert_true(u.gpu_least == 0.1 && u.gpu_most == 0.9);
    assert_true(u.values[USAGE_GPU_MEMORY] == 150 && u.values[USAGE_GPU_WATTS] == 600);
    assert_true(u.values[USAGE_GPU_CELSIUS] == 70);
}

static void what_one_gpu_does_not_tell_is_unknown(void **state)
{
    struct usage u;

    (void)state;
    usage_init(&u);
    usage_add_gpu(&u, NAN, 100, 0, 0);
    usage_add_gpu(&u, 0.5, 50, 100, 70);
    assert_true(isnan(u.values[USAGE_GPU]) && isnan(u.gpu_least) && isnan(u.gpu_most));
    assert_true(isnan(u.values[USAGE_GPU_WATTS]) && isnan(u.values[USAGE_GPU_CELSIUS]));
    assert_true(u.values[USAGE_GPU_MEMORY] == 150);
}

static void only_whole_names_are_those_of_usage(void **state)
{
    (void)state;
    assert_true(usage_is_metric("sys.cpu") && usage_is_metric("gpu.celsius"));
    assert_true(usage_is_peak("gpu.celsius") && !usage_is_peak("sys.cpu") && !usage_is_peak("loss"));
    assert_false(usage_is_metric("sys.cpus") || usage_is_metric("gpu.") || usage_is_metric("loss"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_of_a_rank_are_summed_up),
        cmocka_unit_test(what_one_gpu_does_not_tell_is_unknown),
        cmocka_unit_test(only_whole_names_are_those_of_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
