/* How generations end: the budget, what is charged and what is not, stops, what a fault cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/exits.h"
#include "base/mem.h"
#include "core_test.h"

static int64_t running_job(struct bench *b, const char *file)
{
    bench_node(b, "box1", 4);
    bench_node(b, "box2", 4);
    int64_t job = bench_submit(b, file);
    bench_form(b, job);
    return job;
}

static void obey(struct bench *b)
{
    bench_all_obey(b, "box1");
    bench_all_obey(b, "box2");
}

static void all_ranks_at_zero_succeed(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 2\n");

    bench_exit(b, job, 1, 0, 0);
    assert_int_equal(bench_job(b, job), JOB_RUNNING); /* one may end before the others */
    bench_exit(b, job, 0, 0, 0);
    assert_int_equal(bench_job(b, job), JOB_SUCCEEDED);
    assert_int_equal(core_job(b->core, job)->exit_code, 0);
}

static void a_failure_closes_the_generation_and_is_charged(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 2\nprocs_per_node: 2\nmax_restarts: 3\n");

    bench_exit(b, job, 2, 0, 9);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    assert_true(bench_said(b, "rank 2 exited by signal 9 on box2, noticed after 12 ms\n"));
    assert_true(bench_said(b, "generation 1 closed (restart 1 of 3)\n"));
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_TERM);
    obey(b);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(core_job(b->core, job)->restarts_used, 1);
    assert_int_equal(core_job(b->core, job)->generation, 2);
}

static void the_first_failing_rank_is_named(void **state)
{
    struct bench *b = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = running_job(b, "procs_per_node: 3\nmax_restarts: 0\n");
    struct core_fact facts[] = {
        {.job = job, .spawn = 1, .state = FACT_EXITED, .code = 1, .ended_ms = b->now.wall_ms - 5},
        {.job = job,
         .spawn = 2,
         .state = FACT_EXITED,
         .code = 7,
         .ended_ms = b->now.wall_ms - 9,
         .message = "ValueError: bad batch",
         .stderr_tail = "a\nb"},
        {.job = job, .spawn = 3, .state = FACT_EXITED, .code = 1, .ended_ms = b->now.wall_ms - 4},
    };

    bench_facts(b, bench_node_of(b, job, 0), facts, 3);
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_int_equal(core_job(b->core, job)->exit_code, 7);
    assert_int_equal(core_job_status(b->core, job, true, &status, &e), ERR_OK);
    assert_int_equal(status.failure->rank, 1);
    assert_string_equal(status.failure->stderr_tail, "a\nb");
    assert_non_null(strstr(status.reason, "ValueError: bad batch"));
    core_job_status_release(&status);
}

/* The rank that the newest failure is told of. */
static int named(struct bench *b, int64_t job)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    int rank = status.failure ? status.failure->rank : -1;
    core_job_status_release(&status);
    return rank;
}

/* Rank 0 is seen to end first; then rank 1 as `end` says, untold. */
static int64_t two_end(struct bench *b, const char *file, int first_code, int first_signal,
                       struct core_fact end)
{
    int64_t job = running_job(b, file);

    bench_exit(b, job, 0, first_code, first_signal);
    end.state = FACT_EXITED;
    end.ended_ms = b->now.wall_ms - 12;
    bench_fact(b, job, 1, end);
    return job;
}

static void a_signal_that_was_seen_later_came_first(void **state)
{
    struct bench *b = *state;
    const char *file = "nodes: 2\nmax_restarts: 0\n";
    int64_t job = two_end(b, file, 1, 0, (struct core_fact){.signal = 11});

    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_int_equal(core_job(b->core, job)->exit_code, 139);
    assert_int_equal(named(b, job), 1);
    assert_non_null(strstr(core_job(b->core, job)->reason, "rank 1 exited by signal 11 on box2"));
    assert_true(bench_said(b, "rank 1 exited by signal 11 on box2, noticed after 12 ms: this came first\n"));
    bench_restart(b);
    assert_int_equal(named(b, job), 1);
}

static void a_shells_word_for_a_signal_counts_as_one(void **state)
{
    struct bench *b = *state;
    int64_t job = two_end(b, "nodes: 2\nmax_restarts: 0\n", 1, 0, (struct core_fact){.code = 137});

    assert_int_equal(core_job(b->core, job)->exit_code, 137);
    assert_int_equal(named(b, job), 1);
}

static void what_followed_is_not_taken_for_the_cause(void **state)
{
    static const struct {
        int code, signal;
        struct core_fact end;
    } cases[] = {
        {1, 0, {.code = 1}},                    /* as good as the first */
        {1, 0, {.signal = 6}},                  /* a library that aborts when its peer is gone */
        {1, 0, {.signal = 13}},                 /* as writing to it may end */
        {1, 0, {.signal = 9, .stopped = true}}, /* by us */
        {0, 11, {.signal = 9}},                 /* the first says as much */
        {1, 0, {.code = 0}},
        {1, 0, {.code = 255}}, /* a program's -1 */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bench *b = *state;
        int64_t job = two_end(b, "nodes: 2\nmax_restarts: 0\n", cases[i].code, cases[i].signal, cases[i].end);
        assert_int_equal(bench_job(b, job), JOB_FAILED);
        assert_int_equal(named(b, job), 0);
        assert_int_equal(core_job(b->core, job)->exit_code, cases[i].signal ? 139 : 1);
    }
}

static void a_native_worker_that_lost_its_peer_is_no_cause(void **state)
{
    struct bench *b = *state;
    int64_t job =
        two_end(b, TRAIN "nodes: 2\nmax_restarts: 1\n", EXIT_PEER_LOST, 0, (struct core_fact){.code = 1});

    assert_int_equal(named(b, job), 1);
    assert_int_equal(core_job(b->core, job)->restarts_used, 1); /* charged once */
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_non_null(strstr(core_job(b->core, job)->last_restart, "rank 1 exited with code 1"));
}

static void a_cause_that_a_restart_would_repeat_ends_the_job(void **state)
{
    struct bench *b = *state;
    int64_t job = two_end(b, TRAIN "nodes: 2\nmax_restarts: 5\n", EXIT_PEER_LOST, 0,
                          (struct core_fact){.code = EXIT_NO_RESTART});

    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_int_equal(core_job(b->core, job)->exit_code, EXIT_NO_RESTART);
    assert_int_equal(named(b, job), 1);
}

static void a_native_worker_that_knows_its_own_fault_is_the_cause(void **state)
{
    struct bench *b = *state;
    int64_t job =
        two_end(b, TRAIN "nodes: 2\nmax_restarts: 5\n", EXIT_NO_RESTART, 0, (struct core_fact){.signal = 11});

    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_int_equal(core_job(b->core, job)->exit_code, EXIT_NO_RESTART);
    assert_int_equal(named(b, job), 0);
}

/* Else the events would blame a rank for a restart that was nobody's fault, and is not charged. */
static void what_was_not_charged_keeps_its_name(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 2\nmax_restarts: 1\n");

    bench_fact(b, job, 0, (struct core_fact){.state = FACT_EXITED, .port_busy = true, .code = 1});
    bench_fact(b, job, 1, (struct core_fact){.state = FACT_EXITED, .signal = 11});
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    assert_null(strstr(core_job(b->core, job)->last_restart, "signal 11"));
}

static void a_cancelled_job_keeps_its_reason(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 2\nmax_restarts: 5\n");

    bench_exit(b, job, 0, 1, 0);
    bench_cancel(b, job, false);
    bench_exit(b, job, 1, 0, 11);
    assert_int_equal(bench_job(b, job), JOB_CANCELLED);
    assert_int_equal(named(b, job), 0);
    assert_null(strstr(core_job(b->core, job)->reason, "signal 11"));
}

static void the_budget_is_one_for_the_job(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "max_restarts: 2\n");

    for (int i = 0; i < 2; i++) {
        bench_exit(b, job, 0, 1, 0);
        bench_pass_beating(b, 4000, "box1 box2"); /* the back-off before the second */
        bench_form(b, job);
    }
    bench_exit(b, job, 0, 0, 11);
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_int_equal(core_job(b->core, job)->exit_code, 139);
    assert_true(bench_said(b, "generation 3 closed (all 2 restarts are used)\n"));
}

static void the_first_restart_is_at_once_the_next_waits(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "max_restarts: 5\n");

    bench_exit(b, job, 0, 1, 0);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    bench_form(b, job);
    bench_exit(b, job, 0, 1, 0);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    bench_pass_beating(b, 1100, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
}

static void a_taken_port_is_not_charged(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 0\n");
    int port = bench_generation(b, job)->master_port;
    bench_fact(b, job, 0, (struct core_fact){.state = FACT_EXITED, .port_busy = true, .code = 1});
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_not_equal(bench_generation(b, job)->master_port, port);
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    for (int i = 0; i < 20; i++) /* but not for ever */
        bench_fact(b, job, 0, (struct core_fact){.state = FACT_EXITED, .port_busy = true, .code = 1});
    assert_int_equal(bench_job(b, job), JOB_FAILED);
}

static void what_cannot_start_is_not_tried_again(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 3\n");
    bench_fact(
        b, job, 0,
        (struct core_fact){.state = FACT_EXITED, .not_started = true, .message = "workdir /x is missing"});
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_int_equal(core_job(b->core, job)->exit_code, 125);
    assert_true(bench_said(b, "rank 0 could not start on box1: workdir /x is missing"));
}

static void what_one_node_cannot_start_is_tried_on_another(void **state)
{
    struct bench *b = *state;
    struct core_fact trouble = {.state = FACT_EXITED,
                                .not_started = true,
                                .node_trouble = true,
                                .code = 127,
                                .message = "fork: Resource temporarily unavailable"};

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    int64_t job = bench_submit(b, "max_restarts: 0\n");
    assert_string_equal(bench_node_of(b, job, 0), "box1");
    bench_fact(b, job, 0, trouble);
    assert_true(bench_said(b, "box1 could not start rank 0: fork: Resource temporarily unavailable\n"));
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    bench_fact(b, job, 0, trouble);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING); /* both rest */
    for (int i = 0; i < 4; i++) {
        bench_pass_beating(b, 31000, "box1 box2");
        assert_int_equal(bench_job(b, job), JOB_STARTING);
        assert_int_equal(core_job(b->core, job)->restarts_used, 0);
        bench_fact(b, job, 0, trouble);
    }
    assert_int_equal(bench_job(b, job), JOB_FAILED); /* but not for ever */
}

/* Nothing is charged, however often, the node goes on serving others, and status names the account. */
static void a_job_goes_where_its_user_has_an_account(void **state)
{
    struct bench *b = *state;
    static const char *const missing[] = {"eva", "no account eva on box2", "ana", "no account ana on box2",
                                          NULL};
    static const char *const none[] = {NULL};
    struct core_fact refusal = {.state = FACT_EXITED,
                                .not_started = true,
                                .node_trouble = true,
                                .no_account = true,
                                .code = 127,
                                .message = "no account ana on box1"};

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 2);
    int64_t job = bench_submit(b, "max_restarts: 0\n");
    assert_string_equal(bench_node_of(b, job, 0), "box1");
    bench_fact(b, job, 0, refusal);
    assert_true(bench_said(b, "box1 could not start rank 0: no account ana on box1"));
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    refusal.message = "no account ana on box2";
    bench_fact(b, job, 0, refusal);
    assert_string_equal(bench_waits(b, job),
                        "waits for 1 node with 1 slot each: the cluster has 0, no account ana on "
                        "box1, and the same on 1 other");
    bench_accounts(b, "box2", missing);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    bench_accounts(b, "box1", none); /* it has been made there */
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_string_equal(bench_node_of(b, job, 0), "box1");
    for (int i = 0; i < 8; i++) { /* more often than trouble of a node would be forgiven */
        refusal.message = "no account ana on box1";
        bench_fact(b, job, 0, refusal);
        assert_int_equal(bench_job(b, job), JOB_RECOVERING);
        bench_accounts(b, "box1", none);
        assert_int_equal(bench_job(b, job), JOB_STARTING);
    }
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
}

static void a_trainer_short_of_files_is_its_nodes_trouble(void **state)
{
    struct bench *b = *state;
    int64_t job;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    job = bench_submit(b, "max_restarts: 0\n" TRAIN);
    bench_exit(b, job, 0, EXIT_NODE_TROUBLE, 0);
    assert_true(bench_said(b, "box1 allows rank 0 too few open files (ulimit -n)"));
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    bench_exit(b, job, 0, EXIT_NODE_TROUBLE, 0);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING); /* both rest */
}

static void a_trainer_without_an_address_is_its_nodes_trouble(void **state)
{
    struct bench *b = *state;
    int64_t job;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    job = bench_submit(b, "max_restarts: 0\n" TRAIN);
    bench_exit(b, job, 0, EXIT_NO_ADDRESS, 0);
    assert_true(bench_said(b, "rank 0 on box1 cannot resolve the coordinator's name: "));
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
}

static void a_worker_that_says_so_is_not_started_again(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 2\nmax_restarts: 3\n" TRAIN);

    bench_exit(b, job, 1, EXIT_NO_RESTART, 0);
    obey(b);
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_int_equal(core_job(b->core, job)->exit_code, EXIT_NO_RESTART);
    assert_true(bench_said(b, "(a restart would not help)"));

    job = bench_submit(b, "max_restarts: 3\n"); /* a command's code is its own */
    bench_form(b, job);
    bench_exit(b, job, 0, EXIT_NO_RESTART, 0);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
}

static void an_expired_lease_is_not_the_jobs_fault(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "max_restarts: 0\n");

    bench_fact(b, job, 0, (struct core_fact){.state = FACT_EXITED, .lease_expired = true, .signal = 9});
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
}

static void a_cancel_snapshots_first(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, TRAIN "  snapshot: {dir: /out, every: 10}\n");
    int64_t spawn = bench_spawn(b, job, 0);
    uint64_t watch = bench_watch(b, job, spawn);

    bench_cancel(b, job, false);
    assert_int_equal(bench_job(b, job), JOB_STOPPING);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_SNAPSHOT);
    assert_true(bench_reply(b, watch)->member && bench_reply(b, watch)->stop);
    assert_int_equal(bench_commit(b, job, spawn, 1, 30, "d"), ERR_OK);
    obey(b);
    assert_int_equal(bench_job(b, job), JOB_CANCELLED);
}

static void a_stop_gets_harder(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "grace: 5s\n" TRAIN);

    bench_cancel(b, job, false);
    bench_pass_beating(b, 6000, "box1 box2");
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_TERM);
    bench_pass_beating(b, 16000, "box1 box2");
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_KILL);
    assert_int_equal(bench_job(b, job), JOB_STOPPING);
}

static void a_kill_does_not_wait(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, TRAIN);
    int64_t spawn = bench_spawn(b, job, 0);

    bench_cancel(b, job, false);
    bench_cancel(b, job, true);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_KILL);
    assert_int_equal(bench_commit(b, job, spawn, 1, 30, "d"), ERR_ABORTED);
    obey(b);
    assert_int_equal(bench_job(b, job), JOB_CANCELLED);
}

static void a_queued_job_is_cancelled_at_once(void **state)
{
    struct bench *b = *state;
    int64_t job = bench_submit(b, "");

    bench_cancel(b, job, false);
    assert_int_equal(bench_job(b, job), JOB_CANCELLED);
}

static void the_time_limit_stops_and_fails(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "time_limit: 60s\n" TRAIN);

    bench_pass_beating(b, 59000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_pass_beating(b, 2000, "box1 box2");
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_SNAPSHOT);
    obey(b);
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_string_equal(core_job(b->core, job)->reason, "time limit of 60 s");
}

static void the_time_limit_goes_on_over_a_restart(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "time_limit: 60s\n");

    b->now.boot_ms += 50000;
    b->now.wall_ms += 50000;
    bench_restart(b);
    bench_pass(b, 9000);
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_pass(b, 2000);
    assert_int_equal(bench_job(b, job), JOB_STOPPING);
}

static void a_stop_survives_a_restart_of_ours(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, TRAIN);

    bench_cancel(b, job, false);
    bench_restart(b);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_SNAPSHOT);
    bench_hello(b, "box1", "box1", 4, 0);
    bench_hello(b, "box2", "box2", 4, 0);
    obey(b);
    assert_int_equal(bench_job(b, job), JOB_CANCELLED);
}

static void a_fault_says_what_it_cost(void **state)
{
    struct bench *b = *state;
    struct core_offer offer = {.job = 1, .generation = 1, .step = 3000, .digest = "d", .path = "/out/3000"};
    int64_t job = running_job(b, "max_restarts: 3\n" TRAIN "  snapshot: {dir: /out, every: 10}\n");

    bench_commit(b, job, bench_spawn(b, job, 0), 1, 3000, "d");
    bench_report(b, job, 0, 3201, "loss", 1.5);
    bench_exit(b, job, 0, 0, 9);
    assert_true(bench_said(b, "stopped at step 3,201; generation 1 closed (restart 1 of 3)"));
    bench_all_run(b, bench_node_of(b, job, 0));
    bench_join_with(b, job, 0, &offer, 1);
    bench_put(b, job, "x");
    assert_true(bench_said(b, "state from snapshot step 3,000: 201 steps to redo"));
    bench_pass_beating(b, 18000, "box1 box2");
    bench_report(b, job, 0, 3201, "loss", 1.5);
    assert_true(bench_said(b, "back at step 3,201: 201 steps redone (18 s)"));
}

static int64_t step_of(const struct bench *b, int64_t job)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    int64_t step = status.progress->step;
    core_job_status_release(&status);
    return step;
}

/* It says where its own snapshot put it by its first report, one distance between reports later. */
static void a_command_says_itself_where_it_goes_on(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "max_restarts: 3\ncommand: [train]\n");

    bench_report(b, job, 0, 90, "loss", 1.5);
    bench_report(b, job, 0, 100, "loss", 1.4);
    bench_report(b, job, 0, 110, "loss", 1.3);
    bench_exit(b, job, 0, 0, 9);
    bench_all_run(b, bench_node_of(b, job, 0));
    bench_pass_beating(b, 2000, "box1 box2");
    bench_report(b, job, 0, 90, "loss", 1.5);
    assert_int_equal(step_of(b, job), 90);
    bench_report(b, job, 0, 110, "loss", 1.3);
    assert_true(bench_said(b, "back at step 110: 30 steps redone (2.0 s)"));
    assert_int_equal(step_of(b, job), 110);
}

static void what_a_fault_cost_is_known_after_our_restart_too(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "max_restarts: 3\n" TRAIN);

    bench_report(b, job, 0, 3201, "loss", 1.5);
    bench_exit(b, job, 0, 0, 9);
    bench_pass_beating(b, 5000, "box1 box2");
    bench_restart(b);
    bench_hello(b, "box1", "box1", 4, 0);
    bench_hello(b, "box2", "box2", 4, 0);
    bench_form(b, job);
    bench_pass_beating(b, 13000, "box1 box2");
    bench_report(b, job, 0, 3200, "loss", 1.5);
    assert_false(bench_said(b, "back at step"));
    bench_report(b, job, 0, 3201, "loss", 1.5);
    assert_true(bench_said(b, "back at step 3,201: 3,201 steps redone (18 s)"));
    assert_non_null(strstr(core_job(b->core, job)->last_restart, "signal 9 on box1, noticed"));
    assert_non_null(strstr(core_job(b->core, job)->last_restart, ", cost 18 s"));
}

/* What ended the job explains it, not a failure that it had survived. */
static void a_time_limit_is_not_blamed_on_an_older_failure(void **state)
{
    struct bench *b = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = running_job(b, "max_restarts: 3\ntime_limit: 60s\n" TRAIN);

    bench_exit(b, job, 0, 0, 9);
    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    assert_non_null(status.failure); /* why it restarts */
    core_job_status_release(&status);
    bench_form(b, job);
    bench_pass_beating(b, 61000, "box1 box2");
    bench_all_obey(b, bench_node_of(b, job, 0));
    bench_pass_beating(b, 1000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_string_equal(core_job(b->core, job)->reason, "time limit of 60 s");
    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    assert_null(status.failure);
    core_job_status_release(&status);
}

static void a_users_restart_does_not_take_the_name_of_a_charged_one(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "max_restarts: 3\n" TRAIN);

    bench_report(b, job, 0, 10, "loss", 1.5);
    bench_exit(b, job, 0, 0, 9);
    bench_form(b, job);
    bench_pass_beating(b, 2000, "box1 box2");
    bench_report(b, job, 0, 10, "loss", 1.5);
    assert_non_null(strstr(core_job(b->core, job)->last_restart, "signal 9 on box1"));
    assert_non_null(strstr(core_job(b->core, job)->last_restart, ", cost 2.0 s"));
    assert_int_equal(bench_restart_job(b, job), ERR_OK);
    bench_all_obey(b, bench_node_of(b, job, 0));
    bench_form(b, job);
    bench_pass_beating(b, 5000, "box1 box2");
    bench_report(b, job, 0, 20, "loss", 1.5);
    assert_int_equal(core_job(b->core, job)->restarts_used, 1);
    assert_non_null(strstr(core_job(b->core, job)->last_restart, "signal 9 on box1"));
    assert_non_null(strstr(core_job(b->core, job)->last_restart, ", cost 2.0 s"));
    assert_null(strstr(core_job(b->core, job)->last_restart, "5.0 s"));
}

/* A generation that ended while we were away still has workers: the first wish of the new epoch stops them.
 */
static void closed_generations_stay_stopped_after_our_restart(void **state)
{
    struct bench *b = *state;
    struct core_wish wish;
    struct err e;
    int64_t job = running_job(b, "nodes: 2\nmax_restarts: 3\n" TRAIN);

    assert_string_equal(bench_node_of(b, job, 0), "box1");
    bench_exit(b, job, 1, 0, 9);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_TERM);
    bench_restart(b);
    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].spawns[0].generation, 1);
    assert_int_equal(wish.groups[0].spawns[0].stop, CORE_STOP_TERM);
    core_wish_release(&wish);
    bench_pass_beating(b, 41000, ""); /* grace and more: then harder */
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_KILL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_ranks_at_zero_succeed),
        TEST(a_failure_closes_the_generation_and_is_charged),
        TEST(the_first_failing_rank_is_named),
        TEST(a_signal_that_was_seen_later_came_first),
        TEST(a_shells_word_for_a_signal_counts_as_one),
        TEST(what_followed_is_not_taken_for_the_cause),
        TEST(a_native_worker_that_lost_its_peer_is_no_cause),
        TEST(a_cause_that_a_restart_would_repeat_ends_the_job),
        TEST(a_native_worker_that_knows_its_own_fault_is_the_cause),
        TEST(what_was_not_charged_keeps_its_name),
        TEST(a_cancelled_job_keeps_its_reason),
        TEST(the_budget_is_one_for_the_job),
        TEST(the_first_restart_is_at_once_the_next_waits),
        TEST(a_taken_port_is_not_charged),
        TEST(what_cannot_start_is_not_tried_again),
        TEST(what_one_node_cannot_start_is_tried_on_another),
        TEST(a_trainer_short_of_files_is_its_nodes_trouble),
        TEST(a_trainer_without_an_address_is_its_nodes_trouble),
        TEST(a_worker_that_says_so_is_not_started_again),
        TEST(a_job_goes_where_its_user_has_an_account),
        TEST(an_expired_lease_is_not_the_jobs_fault),
        TEST(a_cancel_snapshots_first),
        TEST(a_stop_gets_harder),
        TEST(a_kill_does_not_wait),
        TEST(a_queued_job_is_cancelled_at_once),
        TEST(the_time_limit_stops_and_fails),
        TEST(a_time_limit_is_not_blamed_on_an_older_failure),
        TEST(a_users_restart_does_not_take_the_name_of_a_charged_one),
        TEST(the_time_limit_goes_on_over_a_restart),
        TEST(a_stop_survives_a_restart_of_ours),
        TEST(a_fault_says_what_it_cost),
        TEST(a_command_says_itself_where_it_goes_on),
        TEST(what_a_fault_cost_is_known_after_our_restart_too),
        TEST(closed_generations_stay_stopped_after_our_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
