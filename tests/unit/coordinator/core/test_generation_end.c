/* How generations end: the restarts of a job, stops, time limits, and the cost of a fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static void all_ranks_exiting_with_zero_succeed(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\n");

    fixture_exit(f, job, 1, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING); /* one may end before the others */
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
    assert_int_equal(core_job(f->core, job)->exit_code, 0);
}

static void a_failure_closes_the_generation_and_counts_as_a_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\nprocs_per_node: 2\nmax_restarts: 3\n");

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_true(fixture_said(f, "rank 2 killed by signal 9 on box2, noticed after 12 ms\n"));
    assert_true(fixture_said(f, "generation 1 closed (restart 1 of 3)\n"));
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_int_equal(core_job(f->core, job)->generation, 2);
}

static void restarts_are_counted_per_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 2\n");

    for (int i = 0; i < 2; i++) {
        fixture_exit(f, job, 0, 0, 9);
        fixture_pass_beating(f, 4000, "box1 box2"); /* the back-off before the second */
        fixture_form(f, job);
    }
    fixture_exit(f, job, 0, 0, 11);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 139);
    assert_true(fixture_said(f, "generation 3 closed (all 2 restarts are used)\n"));
}

static void the_first_restart_is_immediate_and_the_next_waits(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 5\n");

    fixture_exit(f, job, 0, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    fixture_form(f, job);
    fixture_exit(f, job, 0, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_pass_beating(f, 1100, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void a_cancelled_job_writes_a_snapshot_first(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, TRAIN "  snapshot: {dir: /out, every: 10}\n");
    int64_t spawn = fixture_spawn(f, job, 0);
    uint64_t watch = fixture_watch(f, job, spawn);

    fixture_cancel(f, job, false);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_SNAPSHOT);
    assert_true(fixture_reply(f, watch)->member && fixture_reply(f, watch)->stop);
    assert_int_equal(fixture_commit(f, job, spawn, 1, 30, "d"), ERR_OK);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

static void a_stop_gets_harder(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "grace: 5s\n" TRAIN);

    fixture_cancel(f, job, false);
    fixture_pass_beating(f, 6000, "box1 box2");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    fixture_pass_beating(f, 16000, "box1 box2");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_KILL);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
}

static void a_kill_does_not_wait(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, TRAIN);
    int64_t spawn = fixture_spawn(f, job, 0);

    fixture_cancel(f, job, false);
    fixture_cancel(f, job, true);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_KILL);
    assert_int_equal(fixture_commit(f, job, spawn, 1, 30, "d"), ERR_ABORTED);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

static void a_queued_job_is_cancelled_immediately(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, "");

    fixture_cancel(f, job, false);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

static void the_time_limit_stops_and_fails_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "time_limit: 60s\n" TRAIN);

    fixture_pass_beating(f, 59000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass_beating(f, 2000, "box1 box2");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_SNAPSHOT);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_string_equal(core_job(f->core, job)->reason, "time limit of 60 s");
}

static void the_time_limit_survives_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "time_limit: 60s\n");

    f->now.boot_ms += 50000;
    f->now.wall_ms += 50000;
    fixture_restart(f);
    fixture_pass(f, 9000);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass(f, 2000);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
}

static void a_stop_survives_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, TRAIN);

    fixture_cancel(f, job, false);
    fixture_restart(f);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_SNAPSHOT);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_hello(f, "box2", "box2", 4, 0);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

/* The job is explained by what ended it, not by a failure that it had survived. */
static void an_older_failure_does_not_explain_a_time_limit(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = fixture_running_job(f, "max_restarts: 3\ntime_limit: 60s\n" TRAIN);

    fixture_exit(f, job, 0, 0, 9);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_non_null(status.failure); /* why it restarts */
    core_job_status_release(&status);
    fixture_form(f, job);
    fixture_pass_beating(f, 61000, "box1 box2");
    fixture_all_obey(f, fixture_node_of(f, job, 0));
    fixture_pass_beating(f, 1000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_string_equal(core_job(f->core, job)->reason, "time limit of 60 s");
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_null(status.failure);
    core_job_status_release(&status);
}

/* A generation that ended while we were away still has workers: the first wish of the new epoch stops them.
 */
static void closed_generations_stay_stopped_after_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    struct core_wish wish;
    struct err e;
    int64_t job = fixture_running_job(f, "nodes: 2\nmax_restarts: 3\n" TRAIN);

    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    fixture_exit(f, job, 1, 0, 9);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    fixture_restart(f);
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].spawns[0].generation, 1);
    assert_int_equal(wish.groups[0].spawns[0].stop, CORE_STOP_TERM);
    core_wish_release(&wish);
    fixture_pass_beating(f, 41000, ""); /* grace and more: then harder */
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_KILL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_ranks_exiting_with_zero_succeed),
        TEST(a_failure_closes_the_generation_and_counts_as_a_restart),
        TEST(restarts_are_counted_per_job),
        TEST(the_first_restart_is_immediate_and_the_next_waits),
        TEST(a_cancelled_job_writes_a_snapshot_first),
        TEST(a_stop_gets_harder),
        TEST(a_kill_does_not_wait),
        TEST(a_queued_job_is_cancelled_immediately),
        TEST(the_time_limit_stops_and_fails_the_job),
        TEST(an_older_failure_does_not_explain_a_time_limit),
        TEST(the_time_limit_survives_a_coordinator_restart),
        TEST(a_stop_survives_a_coordinator_restart),
        TEST(closed_generations_stay_stopped_after_a_coordinator_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
