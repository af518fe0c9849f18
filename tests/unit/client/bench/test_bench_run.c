/* Tests how `ddpctl bench` reads what the trainer says. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "client/bench/bench_run.h"

static void add_line(struct bench_steps *s, const char *line)
{
    struct err e;

    assert_int_equal(bench_steps_add(s, line, strlen(line), &e), ERR_OK);
}

static void the_first_step_does_not_count(void **state)
{
    struct bench_steps s = {0};
    struct bench_result r = {0};

    (void)state;
    add_line(&s, "{\"step\":0,\"steps\":9,\"tokens\":0,\"parameters\":809856}");
    assert_int_equal(s.count, 0);
    add_line(&s, "{\"step\":1,\"ms_per_step\":900,\"tokens_per_s\":10,\"gflops\":1,\"peak_share\":0.01}");
    add_line(&s, "{\"step\":2,\"ms_per_step\":100,\"tokens_per_s\":90,\"gflops\":9,\"peak_share\":0.4}");
    add_line(&s, "{\"step\":3,\"ms_per_step\":130,\"tokens_per_s\":70,\"gflops\":7,\"peak_share\":0.3}");
    add_line(&s, "{\"step\":4,\"ms_per_step\":110,\"tokens_per_s\":80,\"gflops\":8,\"peak_share\":0.35}");
    bench_steps_result(&s, &r);
    assert_int_equal(r.parameters, 809856);
    assert_int_equal(r.steps, 3);
    assert_true(r.ms_per_step == 110 && r.tokens_per_s == 80 && r.gflops == 8 && r.share == 0.35);
    add_line(&s, "{\"step\":5,\"ms_per_step\":120,\"tokens_per_s\":60,\"gflops\":6,\"peak_share\":0.25}");
    bench_steps_result(&s, &r);
    assert_true(r.ms_per_step == 115 && r.tokens_per_s == 75); /* between the two in the middle */
    bench_steps_release(&s);
}

static void a_line_that_is_no_report_is_an_error(void **state)
{
    struct bench_steps s = {0};
    struct err e;

    (void)state;
    assert_int_equal(bench_steps_add(&s, "Killed", 6, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "the trainer's report"));
    bench_steps_release(&s);
}

static void the_device_is_read_from_the_log(void **state)
{
    struct bench_result r;

    (void)state;
    bench_device_read("event=device_fallback device=cpu\nevent=sizes rank=0 sum_bytes=65 device=cpu:avx2 threads=2\nevent=init\n",
                      &r);
    assert_string_equal(r.device, "cpu:avx2");
    assert_int_equal(r.threads, 2);
    bench_device_read("", &r);
    assert_string_equal(r.device, "unknown");
    assert_int_equal(r.threads, 0);
}

static void sizes_are_found_by_name(void **state)
{
    (void)state;
    assert_int_equal(bench_size_find("middle,large", 6)->width, 384);
    assert_null(bench_size_find("mid", 3));
    assert_null(bench_size_find("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_step_does_not_count),
        cmocka_unit_test(a_line_that_is_no_report_is_an_error),
        cmocka_unit_test(the_device_is_read_from_the_log),
        cmocka_unit_test(sizes_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
