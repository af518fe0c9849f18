/* Train jobs without progress: which rank is named and replaced, and survivors that keep a generation from forming. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/placement/staying_job.h"

#define LIMIT "stall_timeout: 30s\n"

/* How quiet a rank is, in ms; -1: it computes, or writes. */
struct quiet {
    int rank;
    int64_t idle_ms, silent_ms;
    char state;
    int own_wait, cpu_permille;
};

/* The node says this of the ranks of the job's current generation; ranks that are not listed compute and write. */
static void say_activity(struct core_fixture *f, const char *node, int64_t job, const struct quiet *quiet,
                         size_t count)
{
    struct core_activity list[8];

    for (size_t i = 0; i < count; i++)
        list[i] = (struct core_activity){.job = job,
                                         .spawn = fixture_spawn(f, job, quiet[i].rank),
                                         .idle_ms = quiet[i].idle_ms,
                                         .silent_ms = quiet[i].silent_ms,
                                         .state = quiet[i].state,
                                         .waits_in = "read",
                                         .waits_for = "/data/part-3",
                                         .stack = "folio_wait_bit, filemap_read",
                                         .own_wait = quiet[i].own_wait,
                                         .cpu_permille = quiet[i].cpu_permille};
    core_event(f->core,
               &(struct core_event){.kind = CORE_ACTIVITY,
                                    .session = core_find_node(f->core, node)->session,
                                    .activity = {list, count}},
               f->now, &f->out);
}

static void assert_replaced(struct core_fixture *f, int64_t job, int rank)
{
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fixture_stop(f, job, i), i == rank ? CORE_STOP_KILL : CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, rank), 5);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

/* The others sleep in the collective because of it. If one of them were replaced, the job would stand still again. */
static void the_rank_that_computes_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {{0, 9000, 9500}, {1, 9000, 9500}, {2, -1, 9500}, {3, 9000, 9500}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 20900, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass_beating(f, 200, "box1");
    assert_true(fixture_said(
        f, "rank 2 on box1 (pid 103) computes without output or report for 30 s while other ranks wait"));
    assert_replaced(f, job, 2);
}

/* All others sleep in the last barrier, for as long as the rank waits. */
static void ranks_that_wait_for_space_do_not_stand_still(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {{0, 9000, 9500}, {1, 9000, 9500}, {2, 9000, 9500}, {3, 9000, 9500}};

    fixture_snapshot_waits(f, job, 0, 40, "/out: No space left on device", 60000);
    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 59000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass_beating(f, 2000, "box1"); /* it neither ends nor says that it still waits */
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

/* A rank that waits checks now and then whether its peers are alive, and the machine is slow. */
static void of_two_busy_ranks_the_busier_one_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {
        {0, -1, 9500, 0, 0, 25}, {1, 9000, 9500}, {2, -1, 9500, 0, 0, 600}, {3, -1, 9500, 0, 0, 25}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 22000, "box1");
    assert_replaced(f, job, 2);
}

static void the_rank_that_sleeps_outside_a_collective_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {{0, 9000, 9500}, {1, 9000, 9500}, {2, 9000, 9500}, {3, 8000, 9500, 0, 2}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 25000, "box1");
    assert_true(fixture_said(
        f, "rank 3 on box1 (pid 104) makes no progress: no output, no report, no CPU time for "));
    assert_true(fixture_said(f, ", in read of /data/part-3; kernel stack: folio_wait_bit, filemap_read"));
    assert_replaced(f, job, 3);
}

/* Rank 3 sleeps. The others wait for it, and use more CPU time than an idle rank, because the machine is slow. */
static void a_rank_that_sleeps_outside_is_replaced_if_the_waiting_ranks_are_not_idle(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {
        {0, -1, 9500, 0, 0, 25}, {1, -1, 9500, 0, 0, 27}, {2, -1, 9500, 0, 0, 25}, {3, 9000, 9500, 0, 3}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 25000, "box1");
    assert_replaced(f, job, 3);
}

static void a_rank_that_computes_much_comes_before_one_that_sleeps_outside_a_collective(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {
        {0, 9000, 9500}, {1, -1, 9500, 0, 0, 600}, {2, 9000, 9500}, {3, 9000, 9500, 0, 3}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 25000, "box1");
    assert_replaced(f, job, 1);
}

/* Two ranks that sleep outside a collective do not stand out, so the rank that computes is named although it gets little time. */
static void a_rank_that_computes_a_little_is_replaced_if_several_sleep_outside_a_collective(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {
        {0, 9000, 9500}, {1, -1, 9500, 0, 0, 200}, {2, 9000, 9500, 0, 3}, {3, 9000, 9500, 0, 3}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 25000, "box1");
    assert_replaced(f, job, 1);
}

static void a_rank_that_computes_on_a_busy_machine_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {
        {0, -1, 9500, 0, 0, 25}, {1, 9000, 9500}, {2, -1, 9500, 0, 0, 80}, {3, 9000, 9500}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 25000, "box1");
    assert_replaced(f, job, 2);
}

/* The agent of rank 2 does not say how much CPU time its rank uses, so the rank does not count as one that uses none. */
static void a_rank_that_computes_on_a_node_with_an_older_agent_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {
        {0, -1, 9500, 0, 0, 25}, {1, 9000, 9500}, {2, -1, 9500, 0, 0, 0}, {3, 9000, 9500, 0, 2}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 25000, "box1");
    assert_replaced(f, job, 2);
}

/* Threads of NCCL may spin in a collective, so ranks that compute may be those that wait. A rank that sleeps between two looks at its
 * device may wait for a collective, too. */
static void on_gpus_one_busy_rank_stands_out_only_among_several_that_sleep(void **state)
{
    struct core_fixture *f = *state;
    const struct quiet quiet[] = {{0, 8000, 9500, 0, 3}, {1, -1, 9500}, {2, -1, 9500}, {3, 9000, 9500}};

    fixture_hello(f, "box1", "box1", 4, 4);
    fixture_facts(f, "box1", NULL, 0);
    int64_t job = staying_job(f, "device: cuda\n" FOUR LIMIT SAVED);
    say_activity(f, "box1", job, quiet, 4);
    fixture_pass_beating(f, 22000, "box1");
    assert_replaced(f, job, 3); /* no rank stands out, so the rank that fell asleep first is named */
}

/* Its program reads and computes; it does not wait for others. */
static void a_rank_that_computes_and_writes_makes_progress(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {{0, 9000, 9500}, {1, 9000, 9500}, {3, 9000, 9500}};

    say_activity(f, "box1", job, quiet, 3);
    fixture_pass_beating(f, 200000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* SIGKILL does not end it. Its node is drained, and the others go on without it on another node. */
static void a_rank_that_is_stuck_in_the_kernel_is_replaced_elsewhere(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = staying_job(f, "nodes: 2\n" LIMIT SAVED);
    fixture_node(f, "box3", 1);
    say_activity(f, "box2", job, &(struct quiet){1, 31000, 31000, 'D'}, 1);
    fixture_pass_beating(f, 1, "box1 box2 box3");
    assert_true(fixture_said(
        f, "rank 1 on box2 (pid 102) is stuck in the kernel for 31 s, in read of /data/part-3; kernel stack: "
           "folio_wait_bit, filemap_read"));
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_KILL);
    fixture_pass_beating(f, 19000, "box1 box2 box3");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_pass_beating(f, 2000, "box1 box2 box3");
    assert_int_equal(fixture_node_state(f, "box2"), NODE_DRAINING);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_string_equal(fixture_node_of(f, job, 1), "box3");
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

/* It may be the one that the others wait for. */
static void nobody_is_named_while_a_rank_is_out_of_sight(void **state)
{
    struct core_fixture *f = *state;
    const struct quiet quiet[] = {{0, 29000, 29000}, {1, 29000, 29000}};

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    int64_t job = staying_job(f, "nodes: 2\nprocs_per_node: 2\n" LIMIT SAVED);
    say_activity(f, "box1", job, quiet, 2);
    core_event(f->core,
               &(struct core_event){.kind = CORE_SESSION_CLOSED,
                                    .session = core_find_node(f->core, "box2")->session},
               f->now, &f->out);
    fixture_pass_beating(f, 2000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* The coordinator does not receive. The ranks may write again, and the messages about that are still unread. */
static void nobody_is_named_by_old_news(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {{0, 22000, 22500}, {1, 22000, 22500}, {2, 22000, 22500}, {3, 22000, 22500}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_pass(f, 8000);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass_beating(f, 100, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

/* ---- survivors */

static void join_having(struct core_fixture *f, int64_t job, int rank)
{
    f->live_step = 20;
    fixture_join(f, job, rank);
    f->live_step = 0;
}

/* Rank 2 was replaced, and all but rank 3 have joined generation 2. */
static int64_t job_without_rank_3(struct core_fixture *f, const char *file)
{
    int64_t job = staying_job_of_four(f, file);

    fixture_exit(f, job, 2, 0, 9);
    fixture_all_run(f, "box1");
    for (int rank = 0; rank < 3; rank++)
        join_having(f, job, rank);
    return job;
}

static void a_survivor_that_computes_for_ever_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_without_rank_3(f, FOUR LIMIT SAVED);

    /* what it did before the generation was formed does not count */
    say_activity(f, "box1", job, &(struct quiet){3, -1, 29000}, 1);
    fixture_pass_beating(f, 29000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    fixture_pass_beating(f, 2000, "box1");
    assert_true(fixture_said(
        f,
        "rank 3 on box1 (pid 104) computes without output or report for 30 s, and generation 2 waits for it"));
    assert_true(
        fixture_said(f, "generation 2 closed (2 of 4 ranks can go on; replacement 2 of 20 in a day)"));
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 1), 2);
    assert_true(fixture_spawn(f, job, 3) > 5);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    staying_job_rejoin(f, job, 20);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* Its node has said that it is silent before the generation was formed, and does not say it again. */
static void a_survivor_that_was_silent_before_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR LIMIT SAVED);
    const struct quiet quiet[] = {{0, 14000, 16000}, {1, 14000, 16000}, {2, 14000, 16000}, {3, -1, 16000}};

    say_activity(f, "box1", job, quiet, 4);
    fixture_exit(f, job, 2, 0, 9);
    fixture_all_run(f, "box1");
    for (int rank = 0; rank < 3; rank++)
        join_having(f, job, rank);
    fixture_pass_beating(f, 29000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    fixture_pass_beating(f, 2000, "box1");
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
}

/* It sleeps, and never joins. Without stall_timeout join_timeout ends that. */
static void a_survivor_that_was_asleep_before_does_not_count_as_computing(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    say_activity(f, "box1", job, &(struct quiet){3, 14000, 16000}, 1);
    fixture_exit(f, job, 2, 0, 9);
    fixture_all_run(f, "box1");
    for (int rank = 0; rank < 3; rank++)
        join_having(f, job, rank);
    fixture_pass_beating(f, 61000, "box1");
    assert_true(fixture_said(f, "rank 3 on box1 did not join within 60 s"));
}

static void a_stopped_survivor_is_replaced_too(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_without_rank_3(f, FOUR LIMIT SAVED);

    say_activity(f, "box1", job, &(struct quiet){3, 2000, -1, 'T'}, 1);
    fixture_pass_beating(f, 31000, "box1");
    assert_true(fixture_said(
        f, "rank 3 on box1 (pid 104) is stopped by a signal for 30 s, and generation 2 waits for it"));
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL);
}

/* The generation waits for a long evaluation that reports, as before. */
static void a_survivor_that_reports_is_waited_for(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = job_without_rank_3(f, FOUR LIMIT SAVED);

    for (int i = 0; i < 20; i++) {
        say_activity(f, "box1", job, &(struct quiet){3, -1, 16000}, 1);
        fixture_pass_beating(f, 10000, "box1");
        say_activity(f, "box1", job, NULL, 0);
    }
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_true(
        fixture_said(f, "generation 2 waits longer than 60 s for rank 3 on box1, which still computes"));
    say_activity(f, "box1", job, &(struct quiet){3, -1, 16000}, 1);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_non_null(
        strstr(status.stall, "rank 3 on box1 (pid 104) computes without output or report for 16 s"));
    core_job_status_release(&status);
}

/* join_timeout bounds the start of a slow replacement. */
static void a_replacement_that_has_not_joined_is_no_stall(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, "join_timeout: 5m\n" FOUR LIMIT SAVED);

    fixture_exit(f, job, 2, 0, 9);
    fixture_all_run(f, "box1");
    for (int rank = 0; rank < 4; rank++)
        if (rank != 2)
            join_having(f, job, rank);
    say_activity(f, "box1", job, &(struct quiet){2, -1, 16000}, 1);
    fixture_pass_beating(f, 100000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_rank_that_computes_is_replaced),
        TEST(ranks_that_wait_for_space_do_not_stand_still),
        TEST(of_two_busy_ranks_the_busier_one_is_replaced),
        TEST(the_rank_that_sleeps_outside_a_collective_is_replaced),
        TEST(a_rank_that_sleeps_outside_is_replaced_if_the_waiting_ranks_are_not_idle),
        TEST(a_rank_that_computes_much_comes_before_one_that_sleeps_outside_a_collective),
        TEST(a_rank_that_computes_a_little_is_replaced_if_several_sleep_outside_a_collective),
        TEST(a_rank_that_computes_on_a_busy_machine_is_replaced),
        TEST(a_rank_that_computes_on_a_node_with_an_older_agent_is_replaced),
        TEST(on_gpus_one_busy_rank_stands_out_only_among_several_that_sleep),
        TEST(a_rank_that_computes_and_writes_makes_progress),
        TEST(a_rank_that_is_stuck_in_the_kernel_is_replaced_elsewhere),
        TEST(nobody_is_named_while_a_rank_is_out_of_sight),
        TEST(nobody_is_named_by_old_news),
        TEST(a_survivor_that_computes_for_ever_is_replaced),
        TEST(a_survivor_that_was_silent_before_is_replaced),
        TEST(a_survivor_that_was_asleep_before_does_not_count_as_computing),
        TEST(a_stopped_survivor_is_replaced_too),
        TEST(a_survivor_that_reports_is_waited_for),
        TEST(a_replacement_that_has_not_joined_is_no_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
