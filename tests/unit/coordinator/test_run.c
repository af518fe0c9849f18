/* What is special about the nodes of a run: an order of their own, their own numbers of workers, and that
 * nobody else can take their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core_test.h"

static void nodes_follow_by_order_of_joining(void **state)
{
    struct bench *b = *state;

    bench_member(b, "zeta", 1, 0, 1);
    bench_member(b, "alpha", 1, 0, 2);
    bench_member(b, "beta", 1, 0, 3);
    int64_t job = bench_submit(b, "nodes: 3\n");
    assert_string_equal(bench_node_of(b, job, 0), "zeta");
    assert_string_equal(bench_node_of(b, job, 1), "alpha");
    assert_string_equal(bench_node_of(b, job, 2), "beta");
}

static void a_node_rank_is_obeyed(void **state)
{
    struct bench *b = *state;

    bench_member(b, "box1", 1, 3, 1);
    bench_member(b, "box2", 1, 0, 2);
    bench_member(b, "box3", 1, 1, 3);
    int64_t job = bench_submit(b, "nodes: 3\n");
    assert_string_equal(bench_node_of(b, job, 0), "box3");
    assert_string_equal(bench_node_of(b, job, 1), "box2");
    assert_string_equal(bench_node_of(b, job, 2), "box1");
}

static void a_node_rank_beyond_those_that_came_is_no_gap(void **state)
{
    struct bench *b = *state;

    bench_member(b, "box1", 2, 2, 1);
    int64_t job = bench_submit(b, "nodes: \"1:2\"\n");
    assert_int_equal(bench_generation(b, job)->node_count, 1);
    assert_string_equal(bench_node_of(b, job, 1), "box1");
}

static void node_ranks_outlast_a_restart(void **state)
{
    struct bench *b = *state;

    bench_member(b, "box1", 1, 2, 1);
    bench_member(b, "box2", 1, 1, 2);
    int64_t job = bench_submit(b, "nodes: 2\n");
    bench_form(b, job);
    bench_exit(b, job, 0, 1, 0);
    bench_all_obey(b, "box1");
    bench_all_obey(b, "box2");
    assert_int_equal(core_job(b->core, job)->generation, 2);
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    assert_string_equal(bench_node_of(b, job, 1), "box1");
}

static void each_node_has_its_own_number_of_workers(void **state)
{
    struct bench *b = *state;
    struct core_wish wish;
    struct err e = {0};

    bench_member(b, "box1", 2, 0, 1);
    bench_member(b, "box2", 1, 0, 2);
    bench_member(b, "box3", 0, 0, 3);
    int64_t job = bench_submit(b, "nodes: 3\nprocs_per_node: 4\n");
    assert_int_equal(bench_generation(b, job)->world_size, 7);
    assert_string_equal(bench_node_of(b, job, 1), "box1");
    assert_string_equal(bench_node_of(b, job, 2), "box2");
    assert_string_equal(bench_node_of(b, job, 3), "box3");
    assert_int_equal(core_wish(b->core, "box2", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].local_world_size, 1);
    assert_int_equal(wish.groups[0].node_rank, 1);
    core_wish_release(&wish);
}

/* Nothing waits for a lease: whoever says goodbye has ended its workers. */
static void who_leaves_an_elastic_run_is_not_charged(void **state)
{
    struct bench *b = *state;

    bench_member(b, "box1", 1, 0, 1);
    uint64_t session = bench_member(b, "box2", 1, 0, 2);
    int64_t job = bench_submit(b, "nodes: \"1:2\"\nmax_restarts: 0\n");
    bench_all_run(b, "box1");
    bench_all_run(b, "box2");
    bench_goodbye(b, session);
    bench_all_obey(b, "box1");
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    assert_int_equal(core_job(b->core, job)->generation, 2);
    assert_int_equal(bench_generation(b, job)->node_count, 1);
}

/* By silence it takes until its processes are known dead. */
static void who_is_lost_to_an_elastic_run_is_not_charged(void **state)
{
    struct bench *b = *state;

    bench_member(b, "box1", 1, 0, 1);
    bench_member(b, "box2", 1, 0, 2);
    int64_t job = bench_submit(b, "nodes: \"1:2\"\nmax_restarts: 0\nlease: 20s\n");
    bench_all_run(b, "box1");
    bench_all_run(b, "box2");
    bench_pass_beating(b, 10000, "box1");
    assert_int_equal(bench_node_state(b, "box2"), NODE_LOST);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    bench_all_obey(b, "box1");
    bench_pass_beating(b, 20000, "box1");
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    assert_int_equal(core_job(b->core, job)->generation, 2);
    assert_int_equal(bench_generation(b, job)->node_count, 1);
}

static void who_leaves_a_fixed_run_has_failed(void **state)
{
    struct bench *b = *state;

    bench_member(b, "box1", 1, 0, 1);
    uint64_t session = bench_member(b, "box2", 1, 0, 2);
    int64_t job = bench_submit(b, "nodes: 2\nmax_restarts: 0\n");
    bench_all_run(b, "box1");
    bench_all_run(b, "box2");
    bench_goodbye(b, session);
    bench_all_obey(b, "box1");
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_string_equal(core_job(b->core, job)->reason, "node box2 left: ddpctl run has ended there");
    assert_int_equal(core_job(b->core, job)->exit_code, 125);
}

static void a_job_that_is_given_up_has_failed(void **state)
{
    struct bench *b = *state;

    bench_member(b, "box1", 1, 0, 1);
    int64_t job = bench_submit(b, "nodes: 2\n");
    struct core_event event = {.kind = CORE_CANCEL, .call = ++b->handles};
    event.cancel.job = job;
    event.cancel.why = "nobody came";
    event.cancel.exit_code = 125;
    core_event(b->core, &event, b->now, &b->out);
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_string_equal(core_job(b->core, job)->reason, "nobody came");
    assert_int_equal(core_job(b->core, job)->exit_code, 125);
}

static void a_cancel_says_why(void **state)
{
    struct bench *b = *state;

    bench_member(b, "box1", 1, 0, 1);
    int64_t job = bench_submit(b, "nodes: 2\n");
    struct core_event event = {.kind = CORE_CANCEL, .call = ++b->handles};
    event.cancel.job = job;
    event.cancel.why = "box2 was interrupted";
    core_event(b->core, &event, b->now, &b->out);
    assert_int_equal(bench_job(b, job), JOB_CANCELLED);
    assert_string_equal(core_job(b->core, job)->reason, "box2 was interrupted");
}

/* A command's processes get the signal that ddpctl got. */
static void a_cancel_carries_its_signal(void **state)
{
    struct bench *b = *state;
    struct core_wish wish;
    struct err e;

    bench_member(b, "box1", 1, 0, 1);
    int64_t job = bench_submit(b, "nodes: 1\n");
    bench_all_run(b, "box1");
    struct core_event event = {.kind = CORE_CANCEL, .call = ++b->handles};
    event.cancel.job = job;
    event.cancel.signal = 2;
    core_event(b->core, &event, b->now, &b->out);
    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].stop_signal, 2);
    assert_int_not_equal(wish.groups[0].spawns[0].stop, CORE_STOP_NONE);
    core_wish_release(&wish);
    bench_restart(b);
    bench_hello(b, "box1", "box1", 1, 0);
    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].stop_signal, 2);
    core_wish_release(&wish);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nodes_follow_by_order_of_joining),
        TEST(a_node_rank_is_obeyed),
        TEST(a_node_rank_beyond_those_that_came_is_no_gap),
        TEST(node_ranks_outlast_a_restart),
        TEST(each_node_has_its_own_number_of_workers),
        TEST(who_leaves_an_elastic_run_is_not_charged),
        TEST(who_is_lost_to_an_elastic_run_is_not_charged),
        TEST(who_leaves_a_fixed_run_has_failed),
        TEST(a_job_that_is_given_up_has_failed),
        TEST(a_cancel_says_why),
        TEST(a_cancel_carries_its_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
