/* Priority, hold, release and delete: what they change, that it outlives the coordinator, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static const char *refusal_of(const struct core_fixture *f)
{
    return fixture_reply(f, f->handles)->err.msg;
}

static void a_higher_priority_starts_first(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t running = fixture_submit(f, COMMAND);
    int64_t older = fixture_submit(f, COMMAND), newer = fixture_submit(f, COMMAND);
    assert_int_equal(fixture_order(f, CORE_PRIORITY, newer, 1, true), ERR_OK);
    assert_true(fixture_said(f, "priority 0 -> 1 by ana"));
    fixture_restart(f);
    fixture_node(f, "box1", 1);
    fixture_all_run(f, "box1");
    fixture_exit(f, running, 0, 0, 0);
    assert_int_not_equal(fixture_job(f, newer), JOB_QUEUED);
    assert_int_equal(fixture_job(f, older), JOB_QUEUED);
}

static void a_priority_has_limits(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, "priority: 999\n");

    assert_int_equal(fixture_order(f, CORE_PRIORITY, job, 2, true), ERR_INVALID_ARGUMENT);
    assert_string_equal(refusal_of(f), "priority: expected a number from -1000 to 1000, got 1001");
    assert_int_equal(fixture_order(f, CORE_PRIORITY, job, INT64_MAX, true), ERR_INVALID_ARGUMENT);
    assert_string_equal(refusal_of(f),
                        "priority: expected a change of at most 2000, got 9223372036854775807");
    assert_int_equal(fixture_order(f, CORE_PRIORITY, job, -5, false), ERR_OK);
    assert_int_equal(fixture_order(f, CORE_PRIORITY, job + 1, 0, false), ERR_NOT_FOUND);
    fixture_cancel(f, job, false);
    assert_int_equal(fixture_order(f, CORE_PRIORITY, job, 1, false), ERR_FAILED_PRECONDITION);
}

static void a_repeated_change_of_a_priority_counts_once(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, "priority: 3\n");

    assert_int_equal(fixture_checked_priority(f, job, 5, 3), ERR_OK);
    fixture_restart(f); /* the reply was lost with the coordinator */
    assert_int_equal(fixture_checked_priority(f, job, 5, 3), ERR_OK);
    assert_non_null(strstr(core_job(f->core, job)->job_file, "priority: 5\n"));
    assert_int_equal(fixture_checked_priority(f, job, 4, 3), ERR_FAILED_PRECONDITION); /* of someone else */
    assert_string_equal(refusal_of(f), "the priority of job 1 was changed meanwhile: it is 5, not 3");
}

static void a_job_on_hold_starts_when_it_is_released(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, COMMAND);

    assert_int_equal(fixture_order(f, CORE_HOLD, job, 0, true), ERR_OK);
    assert_true(fixture_said(f, "put on hold by ana"));
    fixture_restart(f);
    fixture_node(f, "box1", 1);
    assert_int_equal(fixture_job(f, job), JOB_QUEUED);
    assert_string_equal(fixture_waits(f, job), "on hold: `ddpctl release 1` lets it start");
    int64_t other = fixture_submit(f, COMMAND); /* it keeps no node from others */
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
    fixture_all_run(f, "box1");
    fixture_exit(f, other, 0, 0, 0);
    assert_int_equal(fixture_order(f, CORE_HOLD, job, 0, false), ERR_OK);
    assert_int_equal(fixture_order(f, CORE_HOLD, other, 0, false), ERR_FAILED_PRECONDITION);
    assert_string_equal(refusal_of(f), "job 2 has ended (succeeded)");
    assert_int_equal(fixture_restart_job(f, other),
                     ERR_FAILED_PRECONDITION); /* it has no snapshot to resume from */
    assert_string_equal(refusal_of(f),
                        "job 2 has ended (succeeded); to run it again: `ddpctl show 2 | ddpctl submit "
                        "/dev/stdin`");
    assert_true(fixture_said(f, "released by ana"));
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_null(strstr(core_job(f->core, job)->job_file, "hold"));
}

static void only_a_queued_job_can_be_held(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\n" TRAIN);

    assert_int_equal(fixture_order(f, CORE_HOLD, job, 0, true), ERR_FAILED_PRECONDITION);
    assert_string_equal(refusal_of(f),
                        "job 1 is running: only a queued job can be put on hold, `ddpctl cancel` "
                        "stops this one");
    assert_int_equal(fixture_order(f, CORE_HOLD, job, 0, false), ERR_OK); /* it is not held */
}

static void an_ended_job_cannot_be_held(void **state)
{
    struct core_fixture *f = *state;
    int64_t held = fixture_submit(f, "hold: true\n"), other = fixture_submit(f, COMMAND);

    fixture_cancel(f, held, false);
    fixture_cancel(f, other, false);
    assert_int_equal(fixture_order(f, CORE_HOLD, held, 0, true), ERR_FAILED_PRECONDITION);
    assert_string_equal(refusal_of(f), "job 1 has ended (cancelled)");
    assert_int_equal(fixture_order(f, CORE_HOLD, other, 0, true), ERR_FAILED_PRECONDITION);
    assert_string_equal(refusal_of(f), "job 2 has ended (cancelled)");
}

static void a_submitted_job_can_begin_on_hold(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "hold: true\n");
    assert_int_equal(fixture_job(f, job), JOB_QUEUED);
    assert_int_equal(fixture_order(f, CORE_HOLD, job, 0, false), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void an_ended_job_is_deleted_with_its_logs(void **state)
{
    struct core_fixture *f = *state;
    uint64_t first = fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, "nodes: 2\n");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");

    assert_int_equal(fixture_order(f, CORE_DELETE, job, 0, false), ERR_FAILED_PRECONDITION);
    assert_string_equal(refusal_of(f), "job 1 is running; cancel it first, and delete it once it has ended");
    fixture_exit(f, job, 0, 0, 0);
    fixture_exit(f, job, 1, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
    fixture_goodbye(f, first);
    fixture_clear(f);
    assert_int_equal(fixture_order(f, CORE_DELETE, job, 0, false), ERR_OK);
    assert_int_equal(fixture_effects(f, EFFECT_DELETE_LOGS), 1);
    assert_string_equal(fixture_reply(f, f->handles)->texts[0], "box1"); /* which keeps its logs */
    assert_null(fixture_reply(f, f->handles)->texts[1]);
    assert_true(fixture_said(f, "job 1 'true' was deleted by ana"));
    assert_null(core_job(f->core, job));
    fixture_restart(f);
    assert_null(core_job(f->core, job));
}

static void a_job_that_is_continued_is_not_deleted(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\n" TRAIN "  snapshot: {dir: /out, every: 10}\n"
                                         "  resume: continue\n");

    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 10, "d"), ERR_OK);
    fixture_cancel(f, job, true);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
    fixture_submit(f, "nodes: 2\n" TRAIN "  snapshot: {dir: /out, every: 10}\n  resume: continue\n");
    assert_int_equal(fixture_order(f, CORE_DELETE, job, 0, false), ERR_FAILED_PRECONDITION);
    assert_string_equal(refusal_of(f), "job 1 cannot be deleted yet: job 2 continues from its snapshots");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_higher_priority_starts_first),
        CASE(a_priority_has_limits),
        CASE(a_job_on_hold_starts_when_it_is_released),
        CASE(only_a_queued_job_can_be_held),
        CASE(a_submitted_job_can_begin_on_hold),
        CASE(an_ended_job_is_deleted_with_its_logs),
        CASE(a_job_that_is_continued_is_not_deleted),
        CASE(a_repeated_change_of_a_priority_counts_once),
        CASE(an_ended_job_cannot_be_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
