/* Workers that stand still: when that ends a generation, and what happens if SIGKILL does not end them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

struct quiet {
    int rank;
    int64_t idle_ms, silent_ms;
    char state;
    int own_wait, cpu_permille;
};

/* Box1 reports its quiet ranks; a rank that is not listed is at work. */
static void say_activity(struct core_fixture *f, uint64_t session, int64_t job, const struct quiet *quiet,
                         size_t count)
{
    struct core_activity list[8];
    struct core_event event = {.kind = CORE_ACTIVITY, .session = session};

    for (size_t i = 0; i < count; i++)
        list[i] = (struct core_activity){.job = job,
                                         .spawn = fixture_spawn(f, job, quiet[i].rank),
                                         .idle_ms = quiet[i].idle_ms,
                                         .silent_ms = quiet[i].silent_ms,
                                         .state = quiet[i].state,
                                         .waits_in = "poll",
                                         .own_wait = quiet[i].own_wait,
                                         .cpu_permille = quiet[i].cpu_permille};
    event.activity.spawns = list;
    event.activity.count = count;
    core_event(f->core, &event, f->now, &f->out);
}

static int64_t running_job_on_box1(struct core_fixture *f, const char *file, uint64_t *session)
{
    *session = fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, file);
    fixture_all_run(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    return job;
}

#define FILE3 "procs_per_node: 3\nstall_timeout: 10s\ngrace: 2s\nmax_restarts: 3\n" COMMAND

static void a_stopped_rank_ends_the_generation_even_if_others_print(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);

    say_activity(f, session, job, &(struct quiet){1, 2000, 2000, 'T'}, 1);
    fixture_pass_beating(f, 7900, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass_beating(f, 200, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_true(fixture_said(f, "rank 1 on box1 (pid "));
    assert_true(fixture_said(f, "is stopped by a signal for 10 s"));
    assert_int_equal(core_generation(f->core, job, 1)->failed_spawn, fixture_spawn(f, job, 1));
}

static void an_idle_rank_counts_when_all_are_silent(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);
    const struct quiet quiet[] = {{0, -1, 3000, 0}, {1, -1, 1000, 0}, {2, 4000, 4000, 0}};

    say_activity(f, session, job, quiet, 3);
    fixture_pass_beating(f, 8900, "box1"); /* rank 1 was the last to say something */
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass_beating(f, 200, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_true(fixture_said(f, "rank 2 on box1"));
    assert_true(fixture_said(f, "makes no progress"));
}

/* Ranks of a command may spin in a collective, too, so a busy rank beside one idle rank proves nothing. The idle rank
 * is named, as above. */
static void a_busy_rank_stands_out_among_several_that_sleep(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);
    const struct quiet quiet[] = {{0, 3000, 3000, 0, 0}, {1, -1, 1000, 0, 0}, {2, 4000, 4000, 0, 0}};

    say_activity(f, session, job, quiet, 3);
    fixture_pass_beating(f, 10000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_true(fixture_said(f, "rank 1 on box1 (pid 102) computes without output or report for "));
}

/* Rank 2 waits, although it is not idle. */
static void a_rank_that_uses_little_cpu_time_counts_as_asleep(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);
    const struct quiet quiet[] = {
        {0, 3000, 3000, 0, 0, 0}, {1, -1, 1000, 0, 0, 900}, {2, -1, 4000, 0, 0, 30}};

    say_activity(f, session, job, quiet, 3);
    fixture_pass_beating(f, 10000, "box1");
    assert_true(fixture_said(f, "rank 1 on box1 (pid 102) computes without output or report for "));
}

/* The agent of rank 1 does not say how much CPU time it uses: it may compute as rank 2 does, so none of the two stands out. */
static void a_rank_of_an_older_agent_does_not_count_as_asleep(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);
    const struct quiet quiet[] = {{0, 3000, 3000, 0, 0, 0}, {1, -1, 1000, 0, 0, 0}, {2, -1, 4000, 0, 0, 900}};

    say_activity(f, session, job, quiet, 3);
    fixture_pass_beating(f, 10000, "box1");
    assert_true(fixture_said(
        f, "rank 0 on box1 (pid 101) makes no progress: no output, no report, no CPU time for "));
}

static void of_two_ranks_the_idle_one_is_named(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, "procs_per_node: 2\nstall_timeout: 10s\n" COMMAND, &session);
    const struct quiet quiet[] = {{0, 3000, 3000, 0, 0}, {1, -1, 1000, 0, 0}};

    say_activity(f, session, job, quiet, 2);
    fixture_pass_beating(f, 10000, "box1");
    assert_true(fixture_said(
        f, "rank 0 on box1 (pid 101) makes no progress: no output, no report, no CPU time for "));
}

static void one_rank_that_prints_renews_the_lease(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);
    const struct quiet quiet[] = {{1, 5000, 5000, 0}, {2, 5000, 5000, 0}};

    say_activity(f, session, job, quiet, 2);
    fixture_pass_beating(f, 60000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void ranks_that_all_compute_renew_the_lease(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);
    const struct quiet quiet[] = {{0, -1, 5000, 0}, {1, -1, 5000, 0}, {2, -1, 5000, 0}};

    say_activity(f, session, job, quiet, 3);
    fixture_pass_beating(f, 60000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void activity_is_forgotten_with_the_session(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);
    struct core_event closed = {.kind = CORE_SESSION_CLOSED, .session = session};

    say_activity(f, session, job, &(struct quiet){1, 2000, 2000, 'T'}, 1);
    core_event(f->core, &closed, f->now, &f->out);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_run(f, "box1");
    fixture_pass_beating(f, 30000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void a_rank_that_works_again_is_forgiven(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, FILE3, &session);

    say_activity(f, session, job, &(struct quiet){1, 9000, 9000, 'T'}, 1);
    say_activity(f, session, job, NULL, 0);
    fixture_pass_beating(f, 30000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void without_a_timeout_a_stall_is_only_shown(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    uint64_t session;
    struct err e;
    int64_t job = running_job_on_box1(f, "procs_per_node: 2\n" COMMAND, &session);

    say_activity(f, session, job, &(struct quiet){1, 2000, 2000, 'D'}, 1);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_string_equal(status.stall, "");
    core_job_status_release(&status);
    fixture_pass_beating(f, 90000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_non_null(strstr(status.stall, "rank 1 on box1 (pid "));
    assert_non_null(strstr(status.stall, "is stuck in the kernel"));
    core_job_status_release(&status);
}

static void the_stall_message_survives_the_exit(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    uint64_t session;
    struct err e;
    int64_t job = running_job_on_box1(f, "stall_timeout: 10s\nmax_restarts: 0\n" COMMAND, &session);

    say_activity(f, session, job, &(struct quiet){0, 11000, 11000, 0}, 1);
    fixture_pass_beating(f, 1, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    fixture_exit(f, job, 0, 0, 15);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 125);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_non_null(strstr(status.failure->message, "makes no progress"));
    core_job_status_release(&status);
}

static void a_worker_that_cannot_be_killed_is_given_up_and_its_node_drained(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, "grace: 1s\n" COMMAND, &session);

    say_activity(f, session, job, &(struct quiet){0, 2000, 2000, 'D'}, 1);
    fixture_cancel(f, job, true);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_KILL);
    fixture_pass_beating(f, 19000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    fixture_pass_beating(f, 2000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_DRAINING);
    assert_non_null(strstr(core_node(f->core, "box1")->note, "cannot be killed"));
}

static void a_worker_that_is_slow_to_die_is_waited_for(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_box1(f, "grace: 1s\n" COMMAND, &session);

    (void)session;
    fixture_cancel(f, job, true);
    fixture_pass_beating(f, 120000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_ALIVE);
}

/* ---- a collective that timed out */

#define FOUR "procs_per_node: 4\n" COMMAND

/* The ranks are quiet as listed, then rank 0 exits with these last words. Returns the reason of the generation's end. */
static const char *reason_of_end(struct core_fixture *f, const struct quiet *quiet, size_t count,
                                 const char *words)
{
    uint64_t session;
    int64_t job = running_job_on_box1(f, FOUR, &session);

    say_activity(f, session, job, quiet, count);
    fixture_fact(
        f, job, 0,
        (struct spawn_fact){
            .state = SPAWN_EXITED, .code = 1, .pid = 101, .stderr_tail = words, .ended_ms = f->now.wall_ms});
    return core_generation(f->core, job, 1)->reason;
}

#define TIMED_OUT "RuntimeError: Timed out waiting 10000ms for recv"

static void a_timeout_names_the_rank_that_is_stopped(void **state)
{
    const struct quiet quiet[] = {{0, 9000, -1, 0, 0}, {1, 9000, -1, 0, 0}, {2, 9000, -1, 'T', 0}};
    const char *reason = reason_of_end(*state, quiet, 3, "RuntimeError: Connection closed by peer");

    assert_non_null(strstr(reason, "; meanwhile rank 2 on box1 (pid 103) was stopped by a signal for 9.0 s"));
}

static void a_timeout_names_the_rank_that_sleeps_elsewhere(void **state)
{
    const struct quiet quiet[] = {
        {0, 9000, -1, 0, 0}, {1, 9000, -1, 0, 0}, {2, 9000, -1, 0, 0}, {3, 9000, -1, 0, 3}};
    const char *reason = reason_of_end(*state, quiet, 4, TIMED_OUT);

    assert_non_null(strstr(reason, "; meanwhile rank 3 on box1 (pid 104) was asleep in poll for 9.0 s"));
}

static void a_timeout_names_the_only_rank_that_computes(void **state)
{
    const struct quiet quiet[] = {{0, 9000, -1, 0, 0}, {1, 9000, -1, 0, 0}, {3, 9000, -1, 0, 0}};
    const char *reason = reason_of_end(*state, quiet, 3, TIMED_OUT);

    assert_non_null(strstr(reason, "; meanwhile rank 2 on box1 (pid 103) was computing"));
}

static void a_timeout_names_the_only_rank_that_sleeps(void **state)
{
    const struct quiet quiet[] = {{1, 9000, -1, 0, 0}};
    const char *reason = reason_of_end(*state, quiet, 1, "Watchdog caught collective operation timeout");

    assert_non_null(strstr(reason, "; meanwhile rank 1 on box1 (pid 102) was asleep in poll for 9.0 s"));
}

static void no_rank_is_named_if_none_stands_out(void **state)
{
    const struct quiet quiet[] = {
        {0, 9000, -1, 0, 0}, {1, 9000, -1, 0, 0}, {2, 9000, -1, 0, 0}, {3, 9000, -1, 0, 0}};

    assert_null(strstr(reason_of_end(*state, quiet, 4, TIMED_OUT), "meanwhile"));
}

static void other_errors_name_no_other_rank(void **state)
{
    const struct quiet quiet[] = {{1, 9000, -1, 0, 3}};

    assert_null(strstr(reason_of_end(*state, quiet, 1, "ValueError: no such shard"), "meanwhile"));
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_stopped_rank_ends_the_generation_even_if_others_print),
        TEST(an_idle_rank_counts_when_all_are_silent),
        TEST(a_busy_rank_stands_out_among_several_that_sleep),
        TEST(a_rank_that_uses_little_cpu_time_counts_as_asleep),
        TEST(a_rank_of_an_older_agent_does_not_count_as_asleep),
        TEST(of_two_ranks_the_idle_one_is_named),
        TEST(one_rank_that_prints_renews_the_lease),
        TEST(ranks_that_all_compute_renew_the_lease),
        TEST(activity_is_forgotten_with_the_session),
        TEST(a_rank_that_works_again_is_forgiven),
        TEST(without_a_timeout_a_stall_is_only_shown),
        TEST(the_stall_message_survives_the_exit),
        TEST(a_worker_that_cannot_be_killed_is_given_up_and_its_node_drained),
        TEST(a_worker_that_is_slow_to_die_is_waited_for),
        TEST(a_timeout_names_the_rank_that_is_stopped),
        TEST(a_timeout_names_the_rank_that_sleeps_elsewhere),
        TEST(a_timeout_names_the_only_rank_that_computes),
        TEST(a_timeout_names_the_only_rank_that_sleeps),
        TEST(no_rank_is_named_if_none_stands_out),
        TEST(other_errors_name_no_other_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
