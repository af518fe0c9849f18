/* How a job waits for the nodes that lack their parts of its snapshots, and how it goes on without them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/snapshots/parts_fixture.h"

static void lose_box2s_parts(struct core_fixture *f, int64_t job)
{
    const struct core_offer one[] = {parts_offer(job, 20, parts_on_box2),
                                     parts_offer(job, 10, parts_on_box2)};

    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, one, 2);
    fixture_join_with(f, job, 1, NULL, 0);
}

/* The file system of box2 is away. box1 has its files all the time: they alone do not end the wait. */
static void a_job_waits_for_the_node_that_lacks_its_parts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");

    lose_box2s_parts(f, job);
    assert_true(parts_wait(f, job));
    assert_non_null(strstr(fixture_waits(f, job), "/out on box2 has none, step 20 was committed there at "));
    assert_non_null(strstr(fixture_waits(f, job),
                           "`ddpctl drain box2` continues without its parts, `ddpctl restart 1 "
                           "--from-scratch` starts again at step 0"));
    parts_all_obey(f);
    int64_t generation = core_job(f->core, job)->generation;
    fixture_looked(f, job, "box1", true);
    fixture_looked(f, job, "box3", false);
    assert_true(parts_wait(f, job));
    fixture_pass_beating(f, 90000, "box1 box2 box3");
    fixture_looked(f, job, "box1", true);
    assert_int_equal(core_job(f->core, job)->generation, generation); /* no process is started to look */
    fixture_looked(f, job, "box2", true);
    assert_int_equal(core_job(f->core, job)->generation, generation + 1);
    assert_true(fixture_said(f, "box2 has its snapshots"));
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    const struct core_offer one = parts_offer(job, 20, parts_on_box2),
                            two = parts_offer(job, 20, parts_on_box1);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

/* There is no older snapshot. Nothing goes on without the moments of box2, so no such command is named. */
static void a_job_waits_for_a_lost_node_with_moments(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    const struct core_offer one = parts_offer_divided(job, 20, parts_on_box2),
                            two = parts_offer_divided(job, 20, parts_on_box1);

    parts_lose_box2(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_true(parts_wait(f, job));
    assert_non_null(strstr(fixture_waits(f, job),
                           "step 20 in /out lacks the parts that box2 (lost) wrote, and needs all of "
                           "its parts; `ddpctl restart 1 --from-scratch`"));
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box3");
    const int64_t generation = core_job(f->core, job)->generation;
    fixture_pass_beating(f, 90000, "box1 box3");
    fixture_looked(f, job, "box1", true);
    assert_false(fixture_said(f, "box1 has its snapshots")); /* it has, but not those that are missing */
    fixture_pass_beating(f, 90000, "box1 box3");
    assert_int_equal(core_job(f->core, job)->generation, generation);
    fixture_node(f, "box2", 1);
    fixture_looked(f, job, "box1", true);
    assert_int_equal(core_job(f->core, job)->generation, generation);
    fixture_looked(f, job, "box2", true);
    assert_int_equal(core_job(f->core, job)->generation, generation + 1);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* The node has its parts again, but another job uses its slot. The other node with parts is no use alone, nor is a smaller job. */
static void a_job_is_not_placed_without_the_node_that_has_moments(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    const struct core_offer one = parts_offer_divided(job, 20, parts_on_box2);

    parts_lose_box2(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_true(parts_wait(f, job));
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box3");
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_true(parts_wait(f, job));
    assert_int_equal(fixture_resize(f, job, 2, 2), ERR_OK);
    const int64_t generation = core_job(f->core, job)->generation;
    fixture_node(f, "box2", 1);
    const int64_t other = fixture_submit(f, "only_nodes: [box2]\n");
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
    fixture_looked(f, job, "box1", true);
    fixture_looked(f, job, "box2", true);
    assert_int_equal(core_job(f->core, job)->generation, generation);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

static void on_lost_snapshots_fail_counts_for_parts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "on_lost_snapshots: fail\n");

    lose_box2s_parts(f, job);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_FAILED);
    parts_all_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_non_null(
        strstr(core_job(f->core, job)->reason, "its snapshots cannot be found: /out on box2 has none"));
}

static void unknown_snapshots_that_lack_parts_are_waited_for(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_that_continues(f, "");
    const struct core_offer one = parts_offer_foreign(20, parts_on_box2),
                            two = parts_offer_foreign(20, parts_on_box1);

    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_true(parts_wait(f, job));
    assert_non_null(
        strstr(fixture_waits(f, job),
               "step 20 in /out lacks the parts that box2 wrote; is the file system mounted there? "
               "`ddpctl drain box2` continues without its parts,"));
    parts_all_obey(f);
    fixture_pass_beating(f, 31000, "box1 box2 box3");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void on_lost_snapshots_fail_counts_for_unknown_ones(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_that_continues(f, "on_lost_snapshots: fail\n");
    const struct core_offer one = parts_offer_foreign(20, parts_on_box2);

    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_telling(f, job, 1, NULL, 0, parts_gone);
    parts_all_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_non_null(
        strstr(core_job(f->core, job)->reason,
               "step 20 in /out lacks the parts that box2 wrote: on box2 /out/step: /out/parts-"));
}

/* box2 is gone for good while its parts are waited for, or from the start: box3 takes its place. */
static void the_parts_of_a_lost_node_are_dropped(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_beside_box3(f, "");
    const struct core_offer one = parts_offer(job, 20, parts_on_box2);

    lose_box2s_parts(f, job);
    parts_all_obey(f);
    fixture_operator(f, CORE_DRAIN, "box2");
    fixture_pass_beating(f, 31000, "box1 box2 box3");
    fixture_looked(f, job, "box1", true);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box3");
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_string_equal(fixture_node_of(f, job, 1), "box3");
    assert_true(
        fixture_said(f, "the parts of step 20 that box2 wrote are dropped: each rank without a part starts "
                        "from the shared model and another rank's moments"));
}

/* The new generation's ranks start, and join with what box1 has of step 20. */
static void join_with_box1s_parts(struct core_fixture *f, int64_t job)
{
    const struct core_offer one = parts_offer(job, 20, parts_on_box2);
    int world = fixture_generation(f, job)->world_size;

    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    for (int rank = 0; rank < world; rank++)
        fixture_join_with(f, job, rank, &one, !strcmp(fixture_node_of(f, job, rank), "box1"));
}

/* There is no node that could take box2's place: after a drain, a job that needs two nodes would only wait for one. */
static void a_job_of_fixed_size_may_continue_on_fewer_nodes(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_of_two(f, "nodes: 2\n");

    lose_box2s_parts(f, job);
    assert_true(parts_wait(f, job));
    assert_non_null(strstr(fixture_waits(f, job),
                           " `ddpctl resize 1 1` continues on 1 node without the parts of box2, `ddpctl "
                           "restart 1 --from-scratch` starts"));
    assert_null(strstr(fixture_waits(f, job), "drain"));
    parts_all_obey(f);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    join_with_box1s_parts(f, job);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_true(fixture_said(f, "the parts of step 20 that box2 wrote are dropped"));
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

/* box1 had rank 0 and is first in every list of nodes. It is left out all the same, also if box2 is busy. */
static void a_smaller_job_leaves_out_the_nodes_that_lack_parts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_of_two(f, "nodes: 2\n");
    const struct core_offer two = parts_offer(job, 20, parts_on_box1);

    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, NULL, 0);
    fixture_join_with(f, job, 1, &two, 1);
    assert_non_null(
        strstr(fixture_waits(f, job), "resize 1 1` continues on 1 node without the parts of box1,"));
    parts_all_obey(f);
    int64_t other = fixture_submit(f, "nodes: 2\n");
    fixture_form(f, other);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_exit(f, other, 0, 0, 0); /* box1 is free */
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_exit(f, other, 1, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
}

static void an_elastic_job_continues_without_a_drained_node(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_of_two(f, "nodes: \"1:2\"\n");

    lose_box2s_parts(f, job);
    assert_non_null(strstr(fixture_waits(f, job), " `ddpctl drain box2` continues without its parts,"));
    parts_all_obey(f);
    fixture_operator(f, CORE_DRAIN, "box2");
    fixture_pass_beating(f, 31000, "box1 box2");
    fixture_looked(f, job, "box1", true);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    join_with_box1s_parts(f, job);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
}

/* The user did not make room for leaving box2 out: the job tries with both nodes, and then says what it may do now. */
static void a_resize_that_keeps_all_nodes_tries_again(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_of_two(f, "nodes: 2\n");

    lose_box2s_parts(f, job);
    parts_all_obey(f);
    assert_int_equal(fixture_resize(f, job, 1, 2), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->node_count, 2);
    join_with_box1s_parts(f, job);
    assert_true(parts_wait(f, job));
    assert_non_null(strstr(fixture_waits(f, job), " `ddpctl drain box2` continues without its parts,"));
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

/* No node has any snapshot: a job of another size would not find one either. */
static void a_resize_does_not_end_the_wait_for_snapshots_that_nobody_has(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = parts_job_of_two(f, "nodes: 2\n");

    parts_kill_and_start(f, job);
    fixture_join_with(f, job, 0, NULL, 0);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_true(parts_wait(f, job));
    assert_null(strstr(fixture_waits(f, job), "without"));
    parts_all_obey(f);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_true(parts_wait(f, job));
}

static void all_nodes_that_lack_parts_are_named(void **state)
{
    struct core_fixture *f = *state;
    static char *const on_three[] = {(char *)"box2", (char *)"box3", NULL};

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    int64_t job = fixture_submit(f, "nodes: 3\n" TRAIN "  resume: continue\n" SNAPSHOTS);
    const struct core_offer one = parts_offer_foreign(20, on_three);
    for (int rank = 0; rank < 3; rank++)
        fixture_join_with(f, job, rank, &one, !strcmp(fixture_node_of(f, job, rank), "box1"));
    assert_non_null(strstr(fixture_waits(f, job),
                           " `ddpctl resize 1 1` continues on 1 node without the parts of box2, box3,"));
    parts_all_obey(f);
    fixture_node(f, "box4", 1);
    fixture_node(f, "box5", 1);
    assert_int_equal(fixture_resize(f, job, 3, 3), ERR_OK);
    for (int rank = 0; rank < 3; rank++)
        fixture_join_with(f, job, rank, &one, !strcmp(fixture_node_of(f, job, rank), "box1"));
    assert_non_null(strstr(fixture_waits(f, job),
                           " `ddpctl drain NODE` for each of box2, box3 continues without their parts,"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_waits_for_the_node_that_lacks_its_parts),
        TEST(on_lost_snapshots_fail_counts_for_parts),
        TEST(a_job_waits_for_a_lost_node_with_moments),
        TEST(a_job_is_not_placed_without_the_node_that_has_moments),
        TEST(the_parts_of_a_lost_node_are_dropped),
        TEST(a_job_of_fixed_size_may_continue_on_fewer_nodes),
        TEST(a_smaller_job_leaves_out_the_nodes_that_lack_parts),
        TEST(an_elastic_job_continues_without_a_drained_node),
        TEST(a_resize_that_keeps_all_nodes_tries_again),
        TEST(a_resize_does_not_end_the_wait_for_snapshots_that_nobody_has),
        TEST(all_nodes_that_lack_parts_are_named),
        TEST(unknown_snapshots_that_lack_parts_are_waited_for),
        TEST(on_lost_snapshots_fail_counts_for_unknown_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
