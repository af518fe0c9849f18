/* Snapshots that fail or do not come are reported until they work again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

/* One rank on box1, of two nodes; step 1200 is committed there. */
static int64_t saved_job(struct core_fixture *f, const char *keys)
{
    CLEANUP(free_text) char *file = xasprintf("%smax_restarts: 3\n" TRAIN SNAPSHOTS, keys);

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, file);
    fixture_all_run(f, "box1");
    fixture_join(f, job, 0);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 1200, "d1200"), ERR_OK);
    fixture_node(f, "box2", 1);
    return job;
}

static char *notes_of(struct core_fixture *f, int64_t job)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    char *note = status.notes ? xstrdup(status.notes[0]) : NULL;
    core_job_status_release(&status);
    return note;
}

static void failing_snapshots_are_reported_until_they_work(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    for (int64_t step = 1300; step < 1600; step += 100) {
        assert_int_equal(fixture_snapshot_failed(f, job, 0, step, "/out/.tmp: No space left on device"),
                         ERR_OK);
        assert_int_equal(fixture_snapshot_failed(f, job, 0, step, "/out/.tmp: No space left on device"),
                         ERR_OK);
        fixture_pass_beating(f, 5000, "box1 box2");
    }
    assert_true(
        fixture_said(f, "rank 0 on box1 could not write the snapshot of step 1,300: /out/.tmp: No space"));
    assert_false(fixture_said(f, "could not write the snapshot of step 1,400"));
    CLEANUP(free_text) char *note = notes_of(f, job);
    assert_non_null(strstr(note, "rank 0 on box1 cannot write snapshots since "));
    assert_non_null(strstr(note, "(3 failures, the last at step 1,500): /out/.tmp: No space left on device"));
    fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 1600, "d1600");
    assert_true(
        fixture_said(f, "rank 0 on box1 writes snapshots again: step 1,600, after 3 failures in 15 s"));
    assert_null(notes_of(f, job));
}

static void a_last_snapshot_that_waits_for_space_is_reported(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    for (int64_t left = 600000; left > 580000; left -= 10000) {
        fixture_snapshot_waits(f, job, 0, 1500, "/out/.tmp: Too many open files", left);
        fixture_pass_beating(f, 5000, "box1 box2");
    }
    assert_true(fixture_said(f,
                             "rank 0 on box1 cannot write the last snapshot, of step 1,500, and tries again "
                             "for up to 10m00s: /out/.tmp: Too many open files"));
    assert_false(fixture_said(f, "could not write the snapshot"));
    CLEANUP(free_text) char *note = notes_of(f, job);
    assert_non_null(strstr(note,
                           "rank 0 on box1 cannot write the last snapshot, of step 1,500, and tries again "
                           "for another 9m4"));
    assert_non_null(strstr(note, "s: /out/.tmp: Too many open files"));
    assert_null(strstr(note, "disk"));
    fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 1500, "d1500");
    assert_true(fixture_said(f, "rank 0 on box1 writes snapshots again: step 1,500, after 1 failure in "));
    assert_null(notes_of(f, job));
}

static void a_stop_says_that_the_last_snapshot_was_lost(void **state)
{
    for (int saved = 0; saved < 2; saved++) {
        struct core_fixture *f = *state;
        int64_t job = saved_job(f, "");

        fixture_cancel(f, job, false);
        if (saved)
            fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 1500, "d1500");
        else
            fixture_snapshot_failed(f, job, 0, 1500, "/out/.tmp: No space left on device");
        fixture_exit(f, job, 0, saved ? 0 : 1, 0);
        assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
        const char *reason = core_job(f->core, job)->reason;
        const char *loss =
            strstr(reason, "; the last snapshot, of step 1,500, could not be written: "
                           "/out/.tmp: No space left on device; the newest snapshot is of step 1,200");
        assert_true(saved ? !strstr(reason, "snapshot") : loss != NULL);
        fixture_teardown(state);
        fixture_setup(state);
    }
}

static void a_former_member_cannot_report_failing_snapshots(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");
    int64_t old = fixture_spawn(f, job, 0);
    struct core_event event = {.kind = CORE_SNAPSHOT_FAILED, .call = ++f->handles};

    fixture_exit(f, job, 0, 0, 9);
    event.member.job = job;
    event.member.spawn = old;
    event.snapshot.step = 5;
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(fixture_reply(f, event.call)->err.code, ERR_ABORTED);
    assert_null(notes_of(f, job));
}

static bool has_note(const struct core_fixture *f, int64_t job, const char *text)
{
    struct core_job_status status;
    struct err e;
    bool found = false;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    for (char **note = status.notes; note && *note; note++)
        found |= strstr(*note, text) != NULL;
    core_job_status_release(&status);
    return found;
}

/* The interval is 10 steps. */
static void a_job_without_commits_is_reported(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    fixture_report(f, job, 0, 1220, "loss", 1);
    fixture_pass_beating(f, 9000, "box1 box2");
    fixture_report(f, job, 0, 1300, "loss", 1); /* a restart of the coordinator takes this long */
    assert_false(fixture_said(f, "has not been able to save"));
    fixture_pass_beating(f, 2000, "box1 box2");
    fixture_report(f, job, 0, 1310, "loss", 1);
    fixture_report(f, job, 0, 1320, "loss", 1);
    assert_true(fixture_said(f, "job 1 has not been able to save since step 1,200 (11"));
    assert_true(has_note(f, job, "1 of its 1 ranks cannot reach the coordinator"));
    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 1330, "d1330"), ERR_OK);
    assert_true(fixture_said(f, "step 1,330 is saved, after 11"));
    assert_false(has_note(f, job, "has not been able to save"));
}

static void slow_snapshots_get_more_time(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    fixture_watch(f, job, fixture_spawn(f, job, 0));
    fixture_pass_beating(f, 50000, "box1 box2");
    fixture_report(f, job, 0, 1300, "loss", 1);
    assert_false(fixture_said(f, "has not been able to save"));
    fixture_pass_beating(f, 11000, "box1 box2");
    fixture_report(f, job, 0, 1310, "loss", 1);
    assert_true(has_note(f, job, "no snapshot was committed in more than two intervals"));
}

static void overdue_begins_after_two_intervals(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    fixture_pass_beating(f, 300000, "box1 box2");
    fixture_report(f, job, 0, 1220, "loss", 1); /* exactly two intervals */
    assert_false(fixture_said(f, "has not been able to save"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(failing_snapshots_are_reported_until_they_work),
        TEST(a_last_snapshot_that_waits_for_space_is_reported),
        TEST(a_stop_says_that_the_last_snapshot_was_lost),
        TEST(a_former_member_cannot_report_failing_snapshots),
        TEST(a_job_without_commits_is_reported),
        TEST(slow_snapshots_get_more_time),
        TEST(overdue_begins_after_two_intervals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
