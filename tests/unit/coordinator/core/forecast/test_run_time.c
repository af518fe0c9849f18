/* How long a job will run: by its progress, by earlier jobs, by its time limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/core/forecast/run_time.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define MINUTE 60000

static int64_t left_of(struct core_fixture *f, int64_t job)
{
    CLEANUP(run_history_release) struct run_history history;

    run_history_collect(&history, f->core);
    return run_time_left(core_find_job(f->core, job), &history, f->now);
}

static int64_t start_job(struct core_fixture *f, const char *file)
{
    int64_t job = fixture_submit(f, file);

    fixture_form(f, job);
    return job;
}

static void run_for(struct core_fixture *f, const char *file, int64_t ms)
{
    int64_t job = start_job(f, file);

    fixture_pass_beating(f, ms, "box1");
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
}

static void by_steps(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 8);
    int64_t job = start_job(f, "name: a\n");
    assert_int_equal(left_of(f, job), -1);
    fixture_report(f, job, 0, 100, "steps", 1000);
    fixture_pass_beating(f, MINUTE, "box1");
    fixture_report(f, job, 0, 400, NULL, 0);
    assert_int_equal(left_of(f, job), 2 * MINUTE); /* 300 steps a minute, 600 to go */
    fixture_pass_beating(f, MINUTE, "box1");       /* without a report */
    assert_int_equal(left_of(f, job), MINUTE);
    fixture_report(f, job, 0, 1000, NULL, 0);
    assert_int_equal(left_of(f, job), 1000);
}

static void numbers_of_any_size_are_bounded(void **state)
{
    const int64_t ten_years = 10LL * 365 * 24 * 60 * MINUTE;
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 8);
    int64_t job = start_job(f, "name: a\n");
    fixture_report(f, job, 0, 1, "steps", 9e17);
    fixture_pass_beating(f, MINUTE, "box1");
    fixture_report(f, job, 0, 2, NULL, 0);
    assert_int_equal(left_of(f, job), ten_years);
    int64_t limited = fixture_submit(f, "name: b\ntime_limit: 36000d\n");
    assert_int_equal(left_of(f, limited), ten_years);
}

static void by_the_time_limit(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 8);
    int64_t job = start_job(f, "time_limit: 10m\n"), waits = fixture_submit(f, "nodes: 2\ntime_limit: 10m\n");
    fixture_pass_beating(f, MINUTE, "box1");
    assert_int_equal(left_of(f, job), 9 * MINUTE);
    assert_int_equal(left_of(f, waits), 10 * MINUTE);
    fixture_report(f, job, 0, 1, "steps", 100000); /* it would take longer than it may */
    fixture_pass_beating(f, MINUTE, "box1");
    fixture_report(f, job, 0, 2, NULL, 0);
    assert_int_equal(left_of(f, job), 8 * MINUTE);
}

static void by_earlier_jobs(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 8);
    run_for(f, "name: a\n", 10 * MINUTE);
    run_for(f, "name: a\n", 30 * MINUTE);
    run_for(f, "name: a\n", 20 * MINUTE);
    run_for(f, "name: b\n", 2 * MINUTE);
    int64_t job = start_job(f, "name: a\n");
    assert_int_equal(left_of(f, job), 20 * MINUTE);
    fixture_pass_beating(f, 25 * MINUTE, "box1"); /* the two shorter ones do not count any more */
    assert_int_equal(left_of(f, job), 5 * MINUTE);
    fixture_pass_beating(f, 15 * MINUTE, "box1"); /* longer than all */
    assert_int_equal(left_of(f, job), 4 * MINUTE);
    int64_t other = start_job(f, "name: b\n"), third = start_job(f, "name: c\n");
    assert_int_equal(left_of(f, other), 2 * MINUTE);
    assert_int_equal(left_of(f, third), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(by_steps, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(numbers_of_any_size_are_bounded, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(by_the_time_limit, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(by_earlier_jobs, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
