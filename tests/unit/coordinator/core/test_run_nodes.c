/* Hosts of `ddpctl run`: their order of joining, the node ranks that they ask for, their own numbers of
 * workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static void node_ranks_follow_the_order_of_joining(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "zeta", 1, 0, 1);
    fixture_member(f, "alpha", 1, 0, 2);
    fixture_member(f, "beta", 1, 0, 3);
    int64_t job = fixture_submit(f, "nodes: 3\n");
    assert_string_equal(fixture_node_of(f, job, 0), "zeta");
    assert_string_equal(fixture_node_of(f, job, 1), "alpha");
    assert_string_equal(fixture_node_of(f, job, 2), "beta");
}

static void a_node_rank_is_obeyed(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "box1", 1, 3, 1);
    fixture_member(f, "box2", 1, 0, 2);
    fixture_member(f, "box3", 1, 1, 3);
    int64_t job = fixture_submit(f, "nodes: 3\n");
    assert_string_equal(fixture_node_of(f, job, 0), "box3");
    assert_string_equal(fixture_node_of(f, job, 1), "box2");
    assert_string_equal(fixture_node_of(f, job, 2), "box1");
}

static void a_node_rank_beyond_the_group_leaves_no_gap(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "box1", 2, 2, 1);
    int64_t job = fixture_submit(f, "nodes: \"1:2\"\n");
    assert_int_equal(fixture_generation(f, job)->node_count, 1);
    assert_string_equal(fixture_node_of(f, job, 1), "box1");
}

static void node_ranks_survive_a_restart(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "box1", 1, 2, 1);
    fixture_member(f, "box2", 1, 1, 2);
    int64_t job = fixture_submit(f, "nodes: 2\nmax_restarts: 1\n");
    fixture_form(f, job);
    fixture_exit(f, job, 0, 0, 9);
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    assert_int_equal(core_job(f->core, job)->generation, 2);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_string_equal(fixture_node_of(f, job, 1), "box1");
}

static void each_node_has_its_own_number_of_workers(void **state)
{
    struct core_fixture *f = *state;
    struct core_wish wish;
    struct err e = {0};

    fixture_member(f, "box1", 2, 0, 1);
    fixture_member(f, "box2", 1, 0, 2);
    fixture_member(f, "box3", 0, 0, 3);
    int64_t job = fixture_submit(f, "nodes: 3\nprocs_per_node: 4\n");
    assert_int_equal(fixture_generation(f, job)->world_size, 7);
    assert_string_equal(fixture_node_of(f, job, 1), "box1");
    assert_string_equal(fixture_node_of(f, job, 2), "box2");
    assert_string_equal(fixture_node_of(f, job, 3), "box3");
    assert_int_equal(core_wish(f->core, "box2", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].local_world_size, 1);
    assert_int_equal(wish.groups[0].node_rank, 1);
    core_wish_release(&wish);
}

/* No lease is waited for: an agent says goodbye after it has ended its workers. */
static void a_host_that_leaves_an_elastic_run_does_not_count_as_a_restart(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "box1", 1, 0, 1);
    uint64_t session = fixture_member(f, "box2", 1, 0, 2);
    int64_t job = fixture_submit(f, "nodes: \"1:2\"\nmax_restarts: 0\n");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fixture_goodbye(f, session);
    fixture_all_obey(f, "box1");
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_int_equal(core_job(f->core, job)->generation, 2);
    assert_int_equal(fixture_generation(f, job)->node_count, 1);
}

/* A silent host costs time until its processes are known dead. */
static void a_host_that_an_elastic_run_loses_does_not_count_as_a_restart(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "box1", 1, 0, 1);
    fixture_member(f, "box2", 1, 0, 2);
    int64_t job = fixture_submit(f, "nodes: \"1:2\"\nmax_restarts: 0\nlease: 20s\n");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fixture_pass_beating(f, 10000, "box1");
    assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_all_obey(f, "box1");
    fixture_pass_beating(f, 20000, "box1");
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_int_equal(core_job(f->core, job)->generation, 2);
    assert_int_equal(fixture_generation(f, job)->node_count, 1);
}

static void a_host_that_leaves_a_fixed_run_fails_it(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "box1", 1, 0, 1);
    uint64_t session = fixture_member(f, "box2", 1, 0, 2);
    int64_t job = fixture_submit(f, "nodes: 2\nmax_restarts: 0\n");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fixture_goodbye(f, session);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_string_equal(core_job(f->core, job)->reason, "node box2 left: ddpctl run has ended there");
    assert_int_equal(core_job(f->core, job)->exit_code, 125);
}

static void a_cancel_with_an_exit_code_fails_the_job(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "box1", 1, 0, 1);
    int64_t job = fixture_submit(f, "nodes: 2\n");
    struct core_event event = {.kind = CORE_CANCEL, .call = ++f->handles};
    event.cancel.job = job;
    event.cancel.why = "nobody came";
    event.cancel.exit_code = 125;
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_string_equal(core_job(f->core, job)->reason, "nobody came");
    assert_int_equal(core_job(f->core, job)->exit_code, 125);
}

static void a_cancel_keeps_its_reason(void **state)
{
    struct core_fixture *f = *state;

    fixture_member(f, "box1", 1, 0, 1);
    int64_t job = fixture_submit(f, "nodes: 2\n");
    struct core_event event = {.kind = CORE_CANCEL, .call = ++f->handles};
    event.cancel.job = job;
    event.cancel.why = "box2 was interrupted";
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
    assert_string_equal(core_job(f->core, job)->reason, "box2 was interrupted");
}

/* A command's processes get the signal that ddpctl got. */
static void a_cancel_carries_its_signal(void **state)
{
    struct core_fixture *f = *state;
    struct core_wish wish;
    struct err e;

    fixture_member(f, "box1", 1, 0, 1);
    int64_t job = fixture_submit(f, "nodes: 1\n");
    fixture_all_run(f, "box1");
    struct core_event event = {.kind = CORE_CANCEL, .call = ++f->handles};
    event.cancel.job = job;
    event.cancel.signal = 2;
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].stop_signal, 2);
    assert_int_not_equal(wish.groups[0].spawns[0].stop, CORE_STOP_NONE);
    core_wish_release(&wish);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].stop_signal, 2);
    core_wish_release(&wish);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(node_ranks_follow_the_order_of_joining),
        TEST(a_node_rank_is_obeyed),
        TEST(a_node_rank_beyond_the_group_leaves_no_gap),
        TEST(node_ranks_survive_a_restart),
        TEST(each_node_has_its_own_number_of_workers),
        TEST(a_host_that_leaves_an_elastic_run_does_not_count_as_a_restart),
        TEST(a_host_that_an_elastic_run_loses_does_not_count_as_a_restart),
        TEST(a_host_that_leaves_a_fixed_run_fails_it),
        TEST(a_cancel_with_an_exit_code_fails_the_job),
        TEST(a_cancel_keeps_its_reason),
        TEST(a_cancel_carries_its_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
