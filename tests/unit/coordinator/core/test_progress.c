/* Progress in the records: when it is written, and that it survives a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static struct core_progress progress_of(struct core_fixture *f, int64_t job)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    struct core_progress progress = *status.progress;
    core_job_status_release(&status);
    return progress;
}

static void check_progress(struct core_fixture *f, int64_t job, int64_t step, double loss)
{
    const struct core_progress p = progress_of(f, job);

    assert_int_equal(p.step, step);
    assert_int_equal(p.steps, 5000);
    assert_int_equal(p.metric_count, 2);
    assert_string_equal(p.metrics[0].name, "loss");
    assert_true(p.metrics[0].value == loss);
    assert_true(p.loss_count > 0 && p.loss_history[p.loss_count - 1] == loss);
    assert_true(p.has_best_val && p.best_val == 1.5);
    assert_int_equal(p.best_val_step, 7);
}

/* Status shows the same progress of an ended job before and after a restart of the coordinator. */
static void progress_survives_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, TRAIN);
    fixture_form(f, job);
    fixture_report(f, job, 0, 7, "loss", 2.25);
    fixture_report(f, job, 0, 7, "val_loss", 1.5);
    fixture_pass_beating(f, 31000, "box1"); /* by then it is written, while the job runs */
    fixture_restart(f);
    check_progress(f, job, 7, 2.25);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_all_run(f, "box1");
    fixture_report(f, job, 0, 5000, "loss", 0.1875);
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
    check_progress(f, job, 5000, 0.1875);
    fixture_restart(f);
    check_progress(f, job, 5000, 0.1875);
}

/* A report waits for the next commit of progress, or for a clean end. */
static void a_report_makes_no_commit(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, TRAIN);
    fixture_form(f, job);
    fixture_report(f, job, 0, 6, "loss", 3);
    fixture_clear(f);
    fixture_report(f, job, 0, 7, "loss", 2.25);
    assert_int_equal(f->out.change_count, 0);
    core_save(f->core, f->now, &f->out);
    assert_int_equal(f->out.change_count, 1);
    assert_int_equal(f->out.changes[0].kind, CHANGE_JOB_PROGRESS);
    fixture_restart(f);
    assert_int_equal(progress_of(f, job).step, 7);
}

/* The coordinator is killed before it has written the last reports. */
static void a_report_without_a_step_leaves_the_step_that_is_in_the_records(void **state)
{
    struct core_fixture *f = *state;
    struct metric_line line = {0};

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, TRAIN);
    fixture_form(f, job);
    fixture_report(f, job, 0, 500, "loss", 2.25);
    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 500, "a"), ERR_OK);
    fixture_report(f, job, 0, 510, "loss", 2.0);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_all_run(f, "box1");
    assert_true(metric_line_add(&line, "memory_bytes", 1e6));
    fixture_report_line(f, job, 0, &line);
    assert_int_equal(progress_of(f, job).step, 500);
    assert_int_equal(core_job_step(f->core, job), 500);
    fixture_report(f, job, 0, 520, "loss", 1.75);
    assert_int_equal(progress_of(f, job).step, 520);
}

/* Snapshots of an earlier generation do not count: this one may have begun before them. */
static void a_generation_that_begins_earlier_has_its_own_step(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, TRAIN);
    fixture_form(f, job);
    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 500, "a"), ERR_OK);
    f->kept.snapshots[0].generation = 0; /* of a generation before */
    fixture_restart(f);
    assert_int_equal(progress_of(f, job).step, 0);
}

/* Only the first report of a new generation may set the step of a command back. */
static void the_step_of_a_command_stays_over_a_restart(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "name: c\nprocs_per_node: 2\nmax_restarts: 1\n");
    fixture_all_run(f, "box1");
    fixture_report(f, job, 0, 10, "loss", 2.25);
    fixture_pass_beating(f, 31000, "box1");
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 2, 0);
    fixture_all_run(f, "box1");
    fixture_report(f, job, 1, 8, "loss", 2.5);
    assert_int_equal(progress_of(f, job).step, 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(progress_survives_a_coordinator_restart),
        TEST(a_report_makes_no_commit),
        TEST(a_report_without_a_step_leaves_the_step_that_is_in_the_records),
        TEST(a_generation_that_begins_earlier_has_its_own_step),
        TEST(the_step_of_a_command_stays_over_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
