/* A running train job leaves nodes to a job of a higher priority, without a stop. */
#include "tests/unit/base/check.h"

#include "tests/unit/coordinator/core/placement/staying_job.h"

#define ELASTIC "nodes: \"1:3\"\nprocs_per_node: 1\n"
#define COMMAND_ON_ONE "procs_per_node: 1\n" COMMAND

static void a_job_of_a_higher_priority_gets_a_node(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);
    int64_t other = fixture_submit(f, "priority: 1\n" COMMAND_ON_ONE);

    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->world_size, 1);
    staying_job_rejoin(f, job, 20);
    assert_true(fixture_said(f, "shrank from 2 to 1 node at step 20, without a stop, in "));
    assert_true(fixture_said(f, "has a higher priority"));
    assert_int_equal(fixture_job(f, other),
                     JOB_QUEUED); /* the worker that is not needed holds its slot until its end */
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
    fixture_pass_beating(f, 60000, "box1 box2");
    assert_int_equal(staying_handover(f, job), 0); /* it does not want the node back */
}

static void jobs_of_the_same_priority_wait(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_submit(f, COMMAND_ON_ONE);
    assert_int_equal(staying_handover(f, job), 0);
}

static void a_job_keeps_the_fewest_nodes_that_it_may_have(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_submit(f, "priority: 1\nnodes: 2\n" COMMAND_ON_ONE);
    assert_int_equal(staying_handover(f, job), 0);
}

/* What the waiting job lacks would not become free, so nobody leaves anything to it. */
static void nothing_is_left_that_is_not_enough(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box3", 1);
    fixture_submit(f, COMMAND_ON_ONE);
    fixture_all_run(f, "box3");
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);
    fixture_submit(f, "priority: 1\nnodes: 2\n" COMMAND_ON_ONE);
    assert_int_equal(staying_handover(f, job), 0);
}

/* Two jobs hold one slot each of what it lacks, and one of them cannot begin yet. */
static void nothing_is_left_until_all_can_begin(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 1);
    int64_t a = staying_job(f, "nodes: \"1:2\"\nprocs_per_node: 1\n" SAVED);
    int64_t filler = fixture_submit(f, COMMAND_ON_ONE); /* else b would run on box1 */
    fixture_all_run(f, "box1");
    fixture_node(f, "box3", 2);
    fixture_node(f, "box4", 1);
    int64_t b = staying_job(f, "nodes: \"1:2\"\nprocs_per_node: 1\n" TRAIN);
    fixture_exit(f, filler, 0, 0, 0);
    core_find_job(f->core, b)->handover.again_at = f->now.boot_ms + 5000;
    fixture_submit(f, "priority: 1\nnodes: 2\nprocs_per_node: 2\n" COMMAND);
    assert_int_equal(staying_handover(f, a), 0);
    assert_int_equal(staying_handover(f, b), 0);
    fixture_pass_beating(f, 6000, "box1 box2 box3 box4");
    assert_int_not_equal(staying_handover(f, a), 0);
    assert_int_not_equal(staying_handover(f, b), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_of_a_higher_priority_gets_a_node),        TEST(jobs_of_the_same_priority_wait),
        TEST(a_job_keeps_the_fewest_nodes_that_it_may_have), TEST(nothing_is_left_that_is_not_enough),
        TEST(nothing_is_left_until_all_can_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
