/* What status shows of a job: ranks, progress, an estimate of the wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/job/sync_choice.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define IN_OUT TRAIN "  snapshot: {dir: /out, every: 10}\n"

static void status_has_ranks_and_progress(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;

    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "procs_per_node: 2\n" IN_OUT);
    fixture_form(f, job);
    fixture_report(f, job, 1, 7, "loss", 9.0);
    fixture_report(f, job, 0, 6, "loss", 1.5);
    fixture_report(f, job, 1, 8, "loss", 9.0); /* the lowest rank's value is the job's */
    fixture_report(f, job, 1, 8, "ms_per_step", 47.0);
    fixture_report(f, job, 1, 8, "balance_samples", 24);
    fixture_report(f, job, 1, 8, "balance_ms", 1.5);
    assert_int_equal(core_job_status(f->core, job, true, &status, &e), ERR_OK);
    assert_int_equal(status.progress->step, 8);
    assert_int_equal(status.progress->steps, 5000);
    assert_string_equal(status.progress->metrics[0].name, "loss");
    assert_true(status.progress->metrics[0].value == 1.5);
    assert_int_equal(status.joined, 2);
    assert_string_equal(status.nodes[0], "box1");
    assert_null(status.nodes[1]);
    assert_string_equal(status.ranks[1].device, "cpu1");
    assert_true(status.ranks[1].ms_per_step == 47.0);
    assert_int_equal(status.ranks[1].samples, 24);
    assert_true(status.ranks[1].sample_ms == 1.5);
    assert_int_equal(status.ranks[0].samples, 0);
    assert_int_equal(status.ranks[1].rank->state, RANK_TRAINING);
    assert_int_equal(status.ranks[0].spawn->pid, 101);
    core_job_status_release(&status);
}

static void the_loss_history_spans_the_whole_run(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, IN_OUT);
    fixture_form(f, job);
    for (int step = 1; step <= 1000; step++)
        fixture_report(f, job, 0, step, "loss", 1000.0 - step);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_in_range(status.progress->loss_count, CORE_LOSS_HISTORY / 2, CORE_LOSS_HISTORY);
    assert_true(status.progress->loss_history[0] > 900);
    assert_true(status.progress->loss_history[status.progress->loss_count - 1] < 100);
    core_job_status_release(&status);
}

static void a_wait_has_an_estimate(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, IN_OUT), next = fixture_submit(f, "");
    fixture_form(f, job);
    fixture_report(f, job, 0, 1000, NULL, 0);
    fixture_pass_beating(f, 30000, "box1");
    fixture_report(f, job, 0, 2000, NULL, 0); /* 3,000 steps to go, at 1,000 in 30 s */
    assert_string_equal(fixture_waits(f, next), "waits for 1 slot on box1: job 1 holds it, for about 1m30s");
}

/* The trainer of rank 0 reports the choice of `sync: auto` with its first line. */
static void a_chosen_strategy_is_an_event(void **state)
{
    static const char said[] =
        "sync auto: diloco every 32, wire int4: an all-reduce of 4.8 MB takes 3.8 s on this link "
        "(10 Mbit/s), a step computes 170 ms";
    struct sync_facts facts = {
        .compute_ms = 170, .allreduce_ms = 3840, .bytes = 4.8e6, .nodes = 2, .world_size = 2};
    struct metric_line line = {.has_step = true};
    struct core_fixture *f = *state;
    struct sync_spec chosen;

    sync_choose(&facts, &chosen);
    sync_choice_put(&line, &facts, &chosen);
    fixture_node(f, "box1", 4);
    int64_t named = fixture_submit(f, "procs_per_node: 2\n" IN_OUT);
    fixture_form(f, named);
    fixture_report_line(f, named, 0, &line); /* not a job of sync: auto */
    assert_false(fixture_said(f, "sync auto"));
    int64_t job = fixture_submit(f, "procs_per_node: 2\n" TRAIN "  sync: auto\n");
    fixture_form(f, job);
    fixture_report_line(f, job, 1, &line);
    assert_false(fixture_said(f, "sync auto"));
    fixture_report_line(f, job, 0, &line);
    assert_true(fixture_said(f, said));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(status_has_ranks_and_progress),
        TEST(the_loss_history_spans_the_whole_run),
        TEST(a_wait_has_an_estimate),
        TEST(a_chosen_strategy_is_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
