/* Which exit is the cause of a failure, and what it means: a restart that counts, one that does not, or the
 * end of the job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/worker/exits.h"
#include "tests/unit/coordinator/core/core_fixture.h"

static void the_first_failing_rank_is_named(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = fixture_running_job(f, "procs_per_node: 3\nmax_restarts: 0\n");
    struct spawn_fact facts[] = {
        {.job = job, .spawn = 1, .state = SPAWN_EXITED, .code = 1, .ended_ms = f->now.wall_ms - 5},
        {.job = job,
         .spawn = 2,
         .state = SPAWN_EXITED,
         .code = 7,
         .ended_ms = f->now.wall_ms - 9,
         .message = "ValueError: bad batch",
         .stderr_tail = "a\nb"},
        {.job = job, .spawn = 3, .state = SPAWN_EXITED, .code = 1, .ended_ms = f->now.wall_ms - 4},
    };

    fixture_facts(f, fixture_node_of(f, job, 0), facts, 3);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 7);
    assert_int_equal(core_job_status(f->core, job, true, &status, &e), ERR_OK);
    assert_int_equal(status.failure_rank->rank, 1);
    assert_string_equal(status.failure->stderr_tail, "a\nb");
    assert_non_null(strstr(status.reason, "ValueError: bad batch"));
    core_job_status_release(&status);
}

/* The rank that status names for the newest failure. */
static int failed_rank(struct core_fixture *f, int64_t job)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    int rank = status.failure ? status.failure_rank->rank : -1;
    core_job_status_release(&status);
    return rank;
}

/* Rank 0 is reported to end first, then rank 1 by itself, as `end` says. */
static int64_t two_end(struct core_fixture *f, const char *file, int first_code, int first_signal,
                       struct spawn_fact end)
{
    int64_t job = fixture_running_job(f, file);

    fixture_exit(f, job, 0, first_code, first_signal);
    end.state = SPAWN_EXITED;
    end.ended_ms = f->now.wall_ms - 12;
    fixture_fact(f, job, 1, end);
    return job;
}

static void a_signal_reported_later_replaces_an_exit_code_as_the_cause(void **state)
{
    struct core_fixture *f = *state;
    const char *file = "nodes: 2\nmax_restarts: 0\n";
    int64_t job = two_end(f, file, 1, 0, (struct spawn_fact){.signal = 11});

    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 139);
    assert_int_equal(failed_rank(f, job), 1);
    assert_non_null(strstr(core_job(f->core, job)->reason, "rank 1 killed by signal 11 on box2"));
    assert_true(fixture_said(
        f, "rank 1 killed by signal 11 on box2, noticed after 12 ms: this failure came first\n"));
    fixture_restart(f);
    assert_int_equal(failed_rank(f, job), 1);
}

/* Of two ranks one raises an exception. The other loses its connection and aborts, and is gone before the first one, which
 * must not get SIGTERM while it is about to exit. */
static void an_abort_leaves_the_other_ranks_time_to_fail_by_themselves(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\nmax_restarts: 1\n");

    fixture_exit(f, job, 0, 0, 6);
    fixture_pass(f, 900);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_NONE);
    fixture_fact(f, job, 1, (struct spawn_fact){.state = SPAWN_EXITED, .code = 3});
    fixture_pass(f, 5000);
    assert_int_equal(fixture_job(f, job), JOB_FAILED); /* an error is not repeated */
    assert_int_equal(core_job(f->core, job)->exit_code, 3);
    assert_int_equal(failed_rank(f, job), 1);
}

static void after_an_abort_ranks_that_stay_are_stopped(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\nprocs_per_node: 2\nmax_restarts: 0\n");

    fixture_exit(f, job, 0, 0, 6);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_NONE);
    fixture_pass(f, 1100);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_TERM);

    job = fixture_running_job(f, "nodes: 2\nprocs_per_node: 2\nmax_restarts: 0\n");
    fixture_exit(f, job, 0, 0, 6);
    fixture_exit(f, job, 1, 1, 0); /* the cause, so nobody else is waited for */
    assert_int_equal(fixture_stop(f, job, 2), CORE_STOP_TERM);
}

static void after_an_abort_no_rank_of_the_generation_starts(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 4);
    int64_t job = fixture_submit(f, "nodes: 2\nmax_restarts: 1\n");
    fixture_all_run(f, fixture_node_of(f, job, 0));
    fixture_exit(f, job, 0, 0, 6); /* the other node has not begun */
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_TERM);
}

/* A job of two ranks, of which rank 0 has just aborted. */
static int64_t aborted_job(struct core_fixture *f, const char *file)
{
    int64_t job = fixture_running_job(f, file);

    fixture_exit(f, job, 0, 0, 6);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_NONE);
    return job;
}

static void orders_in_the_second_after_an_abort_are_obeyed(void **state)
{
    struct core_fixture *f = *state;
    const char *file = "nodes: 2\nmax_restarts: 3\n";

    int64_t job = aborted_job(f, file);
    fixture_cancel(f, job, true);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_KILL);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);

    job = aborted_job(f, file);
    fixture_cancel(f, job, false);
    fixture_fact(f, job, 1, (struct spawn_fact){.state = SPAWN_EXITED, .code = 3});
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);

    job = aborted_job(f, file);
    fixture_cancel(f, job, false);
    fixture_pass(f, 1100);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_TERM);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);

    job = aborted_job(f, file);
    (void)fixture_restart_job(f, job);
    (void)fixture_resize(f, job, 1, 1);
    fixture_operator(f, CORE_DRAIN, "box2");
    fixture_pass(f, 1100);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_TERM);
    fixture_both_obey(f);
    fixture_pass(f, 2000);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    fixture_operator(f, CORE_UNDRAIN, "box2");
    fixture_cancel(f, job, true);
    fixture_both_obey(f);

    job = aborted_job(f, "nodes: 2\nmax_restarts: 3\ntime_limit: 1s\n");
    fixture_pass(f, 1100);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_TERM);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);

    job = aborted_job(f, file);
    fixture_restart(f);
    fixture_node(f, "box1", 4);
    fixture_hello(f, "box2", "box2", 4, 0);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_TERM);
}

static void exit_code_128_plus_n_counts_as_signal_n(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_end(f, "nodes: 2\nmax_restarts: 0\n", 1, 0, (struct spawn_fact){.code = 137});

    assert_int_equal(core_job(f->core, job)->exit_code, 137);
    assert_int_equal(failed_rank(f, job), 1);
}

static void later_exits_of_equal_weight_do_not_replace_the_cause(void **state)
{
    static const struct {
        int code, signal;
        struct spawn_fact end;
    } cases[] = {
        {1, 0, {.code = 1}},                    /* as likely a cause as the first */
        {1, 0, {.signal = 6}},                  /* a library that aborts when its peer is gone */
        {1, 0, {.signal = 13}},                 /* writing to a lost peer ends in SIGPIPE */
        {1, 0, {.signal = 9, .stopped = true}}, /* told to stop */
        {0, 11, {.signal = 9}},                 /* the first is as likely a cause */
        {1, 0, {.code = 0}},
        {1, 0, {.code = 255}}, /* a program's -1 */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct core_fixture *f = *state;
        int64_t job = two_end(f, "nodes: 2\nmax_restarts: 0\n", cases[i].code, cases[i].signal, cases[i].end);
        assert_int_equal(fixture_job(f, job), JOB_FAILED);
        assert_int_equal(failed_rank(f, job), 0);
        assert_int_equal(core_job(f->core, job)->exit_code, cases[i].signal ? 139 : 1);
    }
}

static void exit_code_peer_lost_is_never_the_cause(void **state)
{
    struct core_fixture *f = *state;
    int64_t job =
        two_end(f, TRAIN "nodes: 2\nmax_restarts: 1\n", EXIT_PEER_LOST, 0, (struct spawn_fact){.code = 1});

    assert_int_equal(failed_rank(f, job), 1);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1); /* counted once */
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_non_null(strstr(core_job(f->core, job)->last_restart, "rank 1 exited with code 1"));
}

static void a_replaced_cause_can_end_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_end(f, TRAIN "nodes: 2\nmax_restarts: 5\n", EXIT_PEER_LOST, 0,
                          (struct spawn_fact){.code = EXIT_NO_RESTART});

    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, EXIT_NO_RESTART);
    assert_int_equal(failed_rank(f, job), 1);
}

static void a_trainers_own_failure_is_not_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_end(f, TRAIN "nodes: 2\nmax_restarts: 5\n", EXIT_NO_RESTART, 0,
                          (struct spawn_fact){.signal = 11});

    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, EXIT_NO_RESTART);
    assert_int_equal(failed_rank(f, job), 0);
}

/* Otherwise the events would blame a rank for a restart that does not count. */
static void a_failure_that_does_not_count_is_not_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\nmax_restarts: 1\n");

    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_EXITED, .port_busy = true, .code = 1});
    fixture_fact(f, job, 1, (struct spawn_fact){.state = SPAWN_EXITED, .signal = 11});
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_null(strstr(core_job(f->core, job)->last_restart, "signal 11"));
}

static void a_cancelled_job_keeps_its_reason(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\nmax_restarts: 5\n");

    fixture_exit(f, job, 0, 1, 0);
    fixture_cancel(f, job, false);
    fixture_exit(f, job, 1, 0, 11);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
    assert_int_equal(failed_rank(f, job), 0);
    assert_null(strstr(core_job(f->core, job)->reason, "signal 11"));
}

static void a_port_in_use_does_not_count_as_a_restart(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 0\n");
    int port = fixture_generation(f, job)->master_port;
    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_EXITED, .port_busy = true, .code = 1});
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_not_equal(fixture_generation(f, job)->master_port, port);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    for (int i = 0; i < 20; i++) /* but not for ever */
        fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_EXITED, .port_busy = true, .code = 1});
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
}

static void a_command_that_cannot_start_fails_the_job(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 3\n");
    fixture_fact(
        f, job, 0,
        (struct spawn_fact){.state = SPAWN_EXITED, .not_started = true, .message = "workdir /x is missing"});
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 125);
    assert_true(fixture_said(f, "rank 0 could not start on box1: workdir /x is missing"));
}

static void a_node_without_resources_rests_and_another_is_tried(void **state)
{
    struct core_fixture *f = *state;
    struct spawn_fact trouble = {.state = SPAWN_EXITED,
                                 .not_started = true,
                                 .node_trouble = true,
                                 .code = 127,
                                 .message = "fork: Resource temporarily unavailable"};

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, "max_restarts: 0\n");
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    fixture_fact(f, job, 0, trouble);
    assert_true(fixture_said(f, "box1 could not start rank 0: fork: Resource temporarily unavailable\n"));
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    fixture_fact(f, job, 0, trouble);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING); /* both rest */
    for (int i = 0; i < 4; i++) {
        fixture_pass_beating(f, 31000, "box1 box2");
        assert_int_equal(fixture_job(f, job), JOB_STARTING);
        assert_int_equal(core_job(f->core, job)->restarts_used, 0);
        fixture_fact(f, job, 0, trouble);
    }
    assert_int_equal(fixture_job(f, job), JOB_FAILED); /* but not for ever */
}

static void too_few_open_files_are_the_nodes_fault(void **state)
{
    struct core_fixture *f = *state;
    int64_t job;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    job = fixture_submit(f, "max_restarts: 0\n" TRAIN);
    fixture_exit(f, job, 0, EXIT_NODE_TROUBLE, 0);
    assert_true(fixture_said(f, "box1 allows rank 0 too few open files (ulimit -n)"));
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    fixture_exit(f, job, 0, EXIT_NODE_TROUBLE, 0);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING); /* both rest */
}

static void an_unresolved_name_is_the_nodes_fault(void **state)
{
    struct core_fixture *f = *state;
    int64_t job;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    job = fixture_submit(f, "max_restarts: 0\n" TRAIN);
    fixture_exit(f, job, 0, EXIT_NO_ADDRESS, 0);
    assert_true(fixture_said(f, "rank 0 on box1 cannot resolve the coordinator's name: "));
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
}

static void exit_code_no_restart_fails_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "nodes: 2\nmax_restarts: 3\n" TRAIN);

    fixture_exit(f, job, 1, EXIT_NO_RESTART, 0);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, EXIT_NO_RESTART);
    assert_true(fixture_said(f, "(a restart would not help)"));

    job = fixture_submit(
        f, "max_restarts: 3\nrestart_on: any\n"); /* the code means nothing special for a command */
    fixture_form(f, job);
    fixture_exit(f, job, 0, EXIT_NO_RESTART, 0);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void an_expired_lease_does_not_count_as_a_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 0\n");

    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_EXITED, .lease_expired = true, .signal = 9});
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
}

static void an_interrupted_worker_restarts_whatever_its_exit_code(void **state)
{
    static const struct spawn_fact ends[] = {
        {.stopped = true, .interrupted = true},
        {.stopped = true,
         .interrupted = true,
         .code = 1}, /* not an error of the program, which would end the job */
        {.stopped = true, .interrupted = true, .signal = 15},
    };

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct core_fixture *f = *state;
        int64_t job = fixture_running_job(f, "max_restarts: 1\n");
        struct spawn_fact end = ends[i];

        end.state = SPAWN_EXITED;
        fixture_fact(f, job, 0, end);
        assert_int_equal(fixture_job(f, job), JOB_STARTING);
        assert_int_equal(core_job(f->core, job)->restarts_used, 1);
        assert_true(fixture_said(f, "was interrupted: its supervisor was told to stop"));
        fixture_form(f, job);
        fixture_fact(f, job, 0, end); /* no restart is left */
        assert_int_equal(fixture_job(f, job), JOB_FAILED);
        assert_int_equal(core_job(f->core, job)->exit_code, end.signal ? 143 : end.code ? end.code : 125);
    }
}

static void an_interrupted_worker_comes_before_the_errors_of_its_peers(void **state)
{
    struct core_fixture *f = *state;
    const struct spawn_fact interrupted = {.stopped = true, .interrupted = true};
    int64_t job = two_end(f, "nodes: 2\nmax_restarts: 1\n", 1, 0, interrupted);

    assert_int_equal(failed_rank(f, job), 1);
    assert_int_equal(fixture_job(f, job), JOB_STARTING); /* an error would have ended the job */
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);

    job = fixture_running_job(f, "nodes: 2\nmax_restarts: 0\n");
    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_EXITED, .stopped = true, .interrupted = true});
    fixture_exit(f, job, 1, 0, 11); /* a later fault is a consequence */
    assert_int_equal(failed_rank(f, job), 0);
}

static void a_command_that_ends_with_0_by_an_unknown_order_has_not_succeeded(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 0\n");

    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_EXITED, .stopped = true});
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    fixture_form(f, job);
    fixture_exit(f, job, 0, 0, 0); /* it ended by itself */
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
}

static void an_interrupted_worker_of_a_cancelled_job_changes_nothing(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 3\n");

    fixture_cancel(f, job, false);
    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_EXITED, .stopped = true, .interrupted = true});
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_failing_rank_is_named),
        TEST(a_signal_reported_later_replaces_an_exit_code_as_the_cause),
        TEST(an_abort_leaves_the_other_ranks_time_to_fail_by_themselves),
        TEST(after_an_abort_ranks_that_stay_are_stopped),
        TEST(after_an_abort_no_rank_of_the_generation_starts),
        TEST(orders_in_the_second_after_an_abort_are_obeyed),
        TEST(exit_code_128_plus_n_counts_as_signal_n),
        TEST(later_exits_of_equal_weight_do_not_replace_the_cause),
        TEST(exit_code_peer_lost_is_never_the_cause),
        TEST(a_replaced_cause_can_end_the_job),
        TEST(a_trainers_own_failure_is_not_replaced),
        TEST(a_failure_that_does_not_count_is_not_replaced),
        TEST(a_cancelled_job_keeps_its_reason),
        TEST(a_port_in_use_does_not_count_as_a_restart),
        TEST(a_command_that_cannot_start_fails_the_job),
        TEST(a_node_without_resources_rests_and_another_is_tried),
        TEST(too_few_open_files_are_the_nodes_fault),
        TEST(an_unresolved_name_is_the_nodes_fault),
        TEST(exit_code_no_restart_fails_the_job),
        TEST(an_expired_lease_does_not_count_as_a_restart),
        TEST(an_interrupted_worker_restarts_whatever_its_exit_code),
        TEST(an_interrupted_worker_comes_before_the_errors_of_its_peers),
        TEST(a_command_that_ends_with_0_by_an_unknown_order_has_not_succeeded),
        TEST(an_interrupted_worker_of_a_cancelled_job_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
