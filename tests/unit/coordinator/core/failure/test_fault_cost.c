/* What a fault costs a job, and which restart the status line shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static void a_fault_reports_its_cost(void **state)
{
    struct core_fixture *f = *state;
    struct core_offer offer = {.job = 1, .generation = 1, .step = 3000, .digest = "d", .path = "/out/3000"};
    int64_t job = fixture_running_job(f, "max_restarts: 3\n" TRAIN "  snapshot: {dir: /out, every: 10}\n");

    fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 3000, "d");
    fixture_report(f, job, 0, 3201, "loss", 1.5);
    fixture_exit(f, job, 0, 0, 9);
    assert_true(fixture_said(f, "stopped at step 3,201; generation 1 closed (restart 1 of 3)"));
    fixture_all_run(f, fixture_node_of(f, job, 0));
    fixture_join_with(f, job, 0, &offer, 1);
    fixture_put(f, job, "x");
    assert_true(fixture_said(f, "state from snapshot step 3,000: 201 steps to redo"));
    fixture_pass_beating(f, 18000, "box1 box2");
    fixture_report(f, job, 0, 3201, "loss", 1.5);
    assert_true(fixture_said(f, "back at step 3,201: 201 steps redone (18 s)"));
}

static int64_t step_of(const struct core_fixture *f, int64_t job)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    int64_t step = status.progress->step;
    core_job_status_release(&status);
    return step;
}

/* Its first report, one reporting interval after its start, says where its own snapshot put it. */
static void a_commands_first_report_sets_its_step(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 3\ncommand: [train]\n");

    fixture_report(f, job, 0, 90, "loss", 1.5);
    fixture_report(f, job, 0, 100, "loss", 1.4);
    fixture_report(f, job, 0, 110, "loss", 1.3);
    fixture_exit(f, job, 0, 0, 9);
    fixture_all_run(f, fixture_node_of(f, job, 0));
    fixture_pass_beating(f, 2000, "box1 box2");
    fixture_report(f, job, 0, 90, "loss", 1.5);
    assert_int_equal(step_of(f, job), 90);
    fixture_report(f, job, 0, 110, "loss", 1.3);
    assert_true(fixture_said(f, "back at step 110: 30 steps redone (2.0 s)"));
    assert_int_equal(step_of(f, job), 110);
}

static void the_cost_of_a_fault_survives_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 3\n" TRAIN);

    fixture_report(f, job, 0, 3201, "loss", 1.5);
    fixture_exit(f, job, 0, 0, 9);
    fixture_pass_beating(f, 5000, "box1 box2");
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_hello(f, "box2", "box2", 4, 0);
    fixture_form(f, job);
    fixture_pass_beating(f, 13000, "box1 box2");
    fixture_report(f, job, 0, 3200, "loss", 1.5);
    assert_false(fixture_said(f, "back at step"));
    fixture_report(f, job, 0, 3201, "loss", 1.5);
    assert_true(fixture_said(f, "back at step 3,201: 3,201 steps redone (18 s)"));
    assert_non_null(strstr(core_job(f->core, job)->last_restart, "signal 9 on box1, noticed"));
    assert_non_null(strstr(core_job(f->core, job)->last_restart, ", cost 18 s"));
}

static void a_users_restart_does_not_replace_the_last_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 3\n" TRAIN);

    fixture_report(f, job, 0, 10, "loss", 1.5);
    fixture_exit(f, job, 0, 0, 9);
    fixture_form(f, job);
    fixture_pass_beating(f, 2000, "box1 box2");
    fixture_report(f, job, 0, 10, "loss", 1.5);
    assert_non_null(strstr(core_job(f->core, job)->last_restart, "signal 9 on box1"));
    assert_non_null(strstr(core_job(f->core, job)->last_restart, ", cost 2.0 s"));
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    fixture_all_obey(f, fixture_node_of(f, job, 0));
    fixture_form(f, job);
    fixture_pass_beating(f, 5000, "box1 box2");
    fixture_report(f, job, 0, 20, "loss", 1.5);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_non_null(strstr(core_job(f->core, job)->last_restart, "signal 9 on box1"));
    assert_non_null(strstr(core_job(f->core, job)->last_restart, ", cost 2.0 s"));
    assert_null(strstr(core_job(f->core, job)->last_restart, "5.0 s"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_users_restart_does_not_replace_the_last_restart),
        TEST(a_fault_reports_its_cost),
        TEST(a_commands_first_report_sets_its_step),
        TEST(the_cost_of_a_fault_survives_a_coordinator_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
