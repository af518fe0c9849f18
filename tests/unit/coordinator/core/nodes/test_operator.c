/* What operators do with nodes: drain, undrain, forget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

static void forget_calls_the_workers_dead(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 3\n");
    fixture_form(f, job);
    fixture_node(f, "box2", 1);
    fixture_operator(f, CORE_FORGET, "box1");
    assert_int_equal(fixture_reply(f, f->handles)->err.code, ERR_FAILED_PRECONDITION); /* it is alive */
    fixture_pass_beating(f, 12000, "box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_operator(f, CORE_FORGET, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_null(core_node(f->core, "box1"));
    struct spawn_fact zombie = {.job = job, .spawn = 1, .state = SPAWN_RUNNING}; /* the operator was wrong */
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_facts(f, "box1", &zombie, 1);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_JOINING);
}

static void a_drain_moves_train_jobs_off_without_counting_a_restart(void **state)
{
    struct core_fixture *f = *state;
    struct core_node_status status;
    struct err e;

    fixture_node(f, "box1", 2);
    int64_t train = fixture_submit(f, "max_restarts: 0\n" TRAIN SNAPSHOTS), command = fixture_submit(f, "");
    fixture_form(f, train);
    fixture_form(f, command);
    fixture_node(f, "box2", 2);
    fixture_operator(f, CORE_DRAIN, "box1");
    assert_int_equal(fixture_node_state(f, "box1"), NODE_DRAINING);
    assert_int_equal(fixture_stop(f, train, 0), CORE_STOP_SNAPSHOT);
    assert_int_equal(fixture_stop(f, command, 0), CORE_STOP_NONE);
    fixture_report(f, train, 0, 44, NULL, 0);
    assert_int_equal(fixture_commit(f, train, fixture_spawn(f, train, 0), 1, 44, "d"), ERR_OK);
    fixture_all_obey(f, "box1");
    assert_string_equal(fixture_node_of(f, train, 0), "box2");
    assert_true(fixture_said(f, "stopped at step 44; generation 1 closed (does not count as a restart)"));
    assert_int_equal(core_job(f->core, train)->restarts_used, 0);
    fixture_exit(f, command, 0, 0, 0);
    assert_int_equal(core_node_status(f->core, "box1", f->now, &status, &e), ERR_OK);
    assert_string_equal(status.state, "drained");
    core_node_status_release(&status);
    int64_t next = fixture_submit(f, "procs_per_node: 2\n");
    assert_int_equal(fixture_job(f, next), JOB_QUEUED);
    fixture_operator(f, CORE_UNDRAIN, "box1");
    assert_int_equal(fixture_job(f, next), JOB_STARTING);
}

static void a_drained_node_that_was_lost_stays_drained(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_operator(f, CORE_DRAIN, "box1");
    fixture_pass(f, 10000);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
    fixture_restart(f);
    fixture_node(f, "box1", 1);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_DRAINING);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(forget_calls_the_workers_dead),
        TEST(a_drain_moves_train_jobs_off_without_counting_a_restart),
        TEST(a_drained_node_that_was_lost_stays_drained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
