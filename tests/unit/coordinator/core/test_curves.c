/* A loss that does not move is said once, and status says where metrics were read from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static int64_t running_job(struct core_fixture *f)
{
    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "procs_per_node: 2\ncommand: [x]\n");
    fixture_all_run(f, "box1");
    return job;
}

/* Whether a note of the job has the text. */
static bool job_notes(struct core_fixture *f, int64_t job, const char *text)
{
    struct core_job_status status;
    struct err e;
    bool found = false;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    for (char *const *note = status.notes; note && *note; note++)
        found = found || strstr(*note, text);
    core_job_status_release(&status);
    return found;
}

static void a_constant_loss_is_said_after_100_steps(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f);

    fixture_report(f, job, 0, 1, "loss", 4);
    for (int64_t step = 10; step < 110; step += 10)
        fixture_report(f, job, 0, step, "loss", 2.5);
    assert_false(job_notes(f, job, "nothing is learned"));
    assert_false(fixture_said(f, "nothing is learned"));
    fixture_report(f, job, 0, 110, "loss", 2.5);
    assert_true(fixture_said(f, "the loss has been 2.5 since step 10, for 100 steps"));
    assert_true(job_notes(f, job, "nothing is learned: the loss has been 2.5"));
    fixture_report(f, job, 1, 115, "loss", 9); /* the job's loss is that of the lowest rank */
    fixture_report(f, job, 0, 120, "loss", 2.5);
    assert_true(job_notes(f, job, "for 110 steps"));
    fixture_report(f, job, 0, 130, "loss", 2.4);
    assert_false(job_notes(f, job, "nothing is learned"));
}

static void a_loss_that_is_not_a_number_is_constant(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f);

    for (int64_t step = 0; step <= 200; step += 10)
        fixture_report(f, job, 0, step, "loss", NAN);
    assert_true(fixture_said(f, "the loss has not been a number since step 0"));
    assert_true(job_notes(f, job, "for 200 steps"));
}

static void few_equal_reports_say_nothing(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f);

    for (int64_t step = 0; step <= 800; step += 100) /* nine: they may be equal by chance */
        fixture_report(f, job, 0, step, "loss", 2.5);
    for (int i = 0; i < 50; i++) /* the same step again and again */
        fixture_report(f, job, 0, 800, "loss", 2.5);
    assert_false(job_notes(f, job, "nothing is learned"));
}

#define DILOCO                                                                                                 \
    "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic}\n  batch: 32\n  steps: 9000\n" \
    "  sync: {type: diloco, every: 20}\n"

static int times_said(const struct core_fixture *f, const char *text)
{
    int times = 0;

    for (const char *at = f->events; (at = strstr(at, text)); at += strlen(text))
        times++;
    return times;
}

static void a_low_agreement_is_said_once(void **state)
{
    struct core_fixture *f = *state;
    int64_t step = 0;
    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "procs_per_node: 2\n" DILOCO);

    fixture_form(f, job);
    for (int i = 0; i < 4; i++)
        fixture_report(f, job, 0, step += 20, "round_agreement", 0.09);
    fixture_report(f, job, 0, step += 20, "round_agreement", 0.1);
    for (int i = 0; i < 4; i++)
        fixture_report(f, job, 0, step += 20, "round_agreement", 0.04);
    for (int i = 0; i < 4; i++)
        fixture_report(f, job, 1, step, "round_agreement", 0.04); /* the same round, of another rank */
    assert_false(fixture_said(f, "changes cancel out"));
    fixture_report(f, job, 0, step += 20, "round_agreement", 0.03);
    assert_true(
        fixture_said(f, "below 0.1 in the last 5 rounds, and 0.03 in the last one; lower sync.every"));
    for (int i = 0; i < 2000; i++)
        fixture_report(f, job, 0, step += 20, "round_agreement", i % 20 ? 0.04 : 0.5);
    assert_int_equal(times_said(f, "changes cancel out"), 1);
    assert_true(job_notes(f, job, "in the last 19 rounds"));
    assert_int_equal(fixture_tune(f, job, "sync.every=10"), ERR_OK);
    assert_false(job_notes(f, job, "changes cancel out"));
    for (int i = 0; i < 4; i++)
        fixture_report(f, job, 0, step += 10, "round_agreement", 0.04);
    assert_int_equal(times_said(f, "changes cancel out"), 1); /* rounds before the change do not count */
    assert_false(job_notes(f, job, "changes cancel out"));
    fixture_report(f, job, 0, step += 10, "round_agreement", 0.04);
    assert_int_equal(times_said(f, "changes cancel out"), 2);
    assert_true(job_notes(f, job, "in the last 5 rounds"));
    fixture_report(f, job, 0, step += 10, "round_agreement", 0.4);
    assert_false(job_notes(f, job, "changes cancel out"));
}

/* A single rank reports no agreement, so no report would end the note. */
static void a_low_agreement_is_that_of_the_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t step = 0;
    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "max_restarts: 3\nprocs_per_node: 2\n" DILOCO);

    fixture_form(f, job);
    for (int i = 0; i < 5; i++)
        fixture_report(f, job, 0, step += 20, "round_agreement", 0.04);
    assert_true(job_notes(f, job, "in the last 5 rounds"));
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    fixture_all_obey(f, "box1");
    fixture_form(f, job);
    assert_int_equal(core_job(f->core, job)->generation, 2);
    assert_int_equal(core_job(f->core, job)->state, JOB_RUNNING);
    assert_false(job_notes(f, job, "changes cancel out"));
    for (int i = 0; i < 4; i++)
        fixture_report(f, job, 0, step += 20, "round_agreement", 0.04);
    assert_false(job_notes(f, job, "changes cancel out"));
    fixture_report(f, job, 0, step += 20, "round_agreement", 0.04);
    assert_true(job_notes(f, job, "in the last 5 rounds"));
    assert_int_equal(times_said(f, "changes cancel out"), 1);
}

static void report_captured(struct core_fixture *f, int64_t job, int64_t step, double loss)
{
    struct metric_line line = {.has_step = true, .step = step};

    assert_true(metric_line_add(&line, "loss", loss));
    fixture_report_captured(f, job, 0, &line, "its output", NULL);
}

/* Programs round what they print, and a progress bar shows a loss again until the program sets a new one. */
static void a_captured_loss_must_stand_still_for_longer(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f);
    int64_t step = 0;

    for (int window = 0; window < 5; window++) /* set every 500 steps */
        for (int i = 0; i < 50; i++, step += 10)
            report_captured(f, job, step, 2.345 - window * 0.125);
    for (int i = 0; i < 500; i++, step += 10)
        report_captured(f, job, step, 0.03);
    assert_false(fixture_said(f, "nothing is learned"));
    for (int i = 0; i < 101; i++, step += 10)
        report_captured(f, job, step, 2.303);
    assert_true(fixture_said(f, "the loss has been 2.303"));
    for (int i = 0; i < 11; i++, step += 10)
        report_captured(f, job, step, NAN);
    assert_true(job_notes(f, job, "the loss has not been a number"));
}

static double job_metric(struct core_fixture *f, int64_t job, const char *name, int64_t *step)
{
    struct core_job_status status;
    struct err e;
    double value = -1;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    for (size_t i = 0; i < status.progress->metric_count; i++)
        if (!strcmp(status.progress->metrics[i].name, name))
            value = status.progress->metrics[i].value;
    *step = status.progress->step;
    core_job_status_release(&status);
    return value;
}

/* The program prints every line from its start on, and reports only from its tenth step on. */
static void what_a_program_reports_is_no_longer_read_from_its_output(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f), step;
    struct metric_line printed = {.has_step = true, .step = 9000};

    report_captured(f, job, 1, 5);
    assert_true(job_metric(f, job, "loss", &step) == 5);
    fixture_report(f, job, 0, 10, "loss", 4);
    fixture_pass_beating(f, 31000, "box1");
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 2, 0);
    fixture_all_run(f, "box1");
    assert_true(metric_line_add(&printed, "loss", 7));
    assert_true(metric_line_add(&printed, "mfu", 0.5));
    fixture_report_captured(f, job, 0, &printed, "its output", NULL);
    assert_true(job_metric(f, job, "loss", &step) == 4);
    assert_int_equal(step, 10);
    assert_true(job_metric(f, job, "mfu", &step) == 0.5);
}

static void check_captured(struct core_fixture *f, int64_t job, const char *want)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_string_equal(status.progress->captured, want);
    core_job_status_release(&status);
}

static void status_says_where_metrics_come_from(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f);
    struct metric_line line = {.has_step = true, .step = 1}, empty = {0};

    assert_true(metric_line_add(&line, "loss", 2));
    fixture_report_captured(f, job, 0, &line, "its output", NULL);
    check_captured(f, job, "its output");
    fixture_report_captured(f, job, 0, &empty, "its output", "capture: skipped 5 MB");
    assert_true(job_notes(f, job, "skipped 5 MB"));
    assert_true(fixture_said(f, "skipped 5 MB"));
    fixture_pass_beating(f, 31000, "box1");
    fixture_restart(f);
    check_captured(f, job, "its output");
    fixture_hello(f, "box1", "box1", 2, 0);
    fixture_all_run(f, "box1");
    fixture_report_line(f, job, 0, &line); /* now it reports by itself */
    check_captured(f, job, "");
}

static void a_note_is_of_its_generation(void **state)
{
    struct core_fixture *f = *state;
    struct metric_line empty = {0};
    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "max_restarts: 3\nrestart_on: any\ncommand: [x]\n");

    fixture_all_run(f, "box1");
    fixture_report_captured(f, job, 0, &empty, "its output", "capture: no event files");
    assert_true(job_notes(f, job, "no event files"));
    fixture_exit(f, job, 0, 1, 0);
    fixture_pass_beating(f, 4000, "box1");
    fixture_all_run(f, "box1");
    assert_int_equal(core_job(f->core, job)->generation, 2);
    assert_false(job_notes(f, job, "no event files"));
    fixture_report_captured(f, job, 0, &empty, "its output", "capture: no event files");
    assert_true(job_notes(f, job, "no event files"));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_constant_loss_is_said_after_100_steps),
        TEST(a_loss_that_is_not_a_number_is_constant),
        TEST(few_equal_reports_say_nothing),
        TEST(a_low_agreement_is_said_once),
        TEST(a_low_agreement_is_that_of_the_generation),
        TEST(a_captured_loss_must_stand_still_for_longer),
        TEST(what_a_program_reports_is_no_longer_read_from_its_output),
        TEST(status_says_where_metrics_come_from),
        TEST(a_note_is_of_its_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
