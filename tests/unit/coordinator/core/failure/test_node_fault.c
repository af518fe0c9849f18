/* A running job gets a new node that lacks its data or its program. It continues without this node. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"

#include "daemon/coordinator/core/placement/survivors.h"
#include "tests/unit/coordinator/core/placement/staying_job.h"

#define TWO "nodes: 2\nprocs_per_node: 1\n"
#define ELASTIC "nodes: \"2:3\"\nprocs_per_node: 1\n"
#define MISSING "open: no data"

static void rank_lacks_data(struct core_fixture *f, int64_t job, int rank)
{
    fixture_fact(f, job, rank,
                 (struct spawn_fact){.state = SPAWN_EXITED,
                                     .code = 78,
                                     .pid = 9,
                                     .stderr_tail = "a line\n" MISSING,
                                     .ended_ms = f->now.wall_ms - 12});
}

/* box3 is offered and both ranks are ready: the next generation has rank 2 there. */
static void job_grows_to_box3(struct core_fixture *f, int64_t job)
{
    assert_int_not_equal(staying_handover(f, job), 0);
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_string_equal(fixture_node_of(f, job, 2), "box3");
}

static int64_t growing_job(struct core_fixture *f, const char *file)
{
    int64_t job = staying_job_on_two(f, file);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    job_grows_to_box3(f, job);
    return job;
}

static void assert_goes_on_without_box3(struct core_fixture *f, int64_t job, int64_t generation)
{
    assert_int_equal(fixture_generation(f, job)->number, generation);
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(fixture_spawn(f, job, rank), rank + 1);
    staying_job_rejoin(f, job, 20);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

static void a_node_without_the_data_is_left_out(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = growing_job(f, ELASTIC SAVED);

    rank_lacks_data(f, job, 2);
    assert_true(fixture_said(f, "rank 2 cannot run on box3: exit code 78: " MISSING "\n"));
    assert_true(fixture_said(f, "generation 2 closed (2 of 3 ranks can go on)"));
    assert_true(fixture_said(f, "box3 is left out for 5m00s, because the job could not run there"));
    assert_goes_on_without_box3(f, job, 3);
    fixture_pass_beating(f, 280000, "box1 box2 box3");
    assert_int_equal(staying_handover(f, job), 0);
    fixture_pass_beating(f, 30000, "box1 box2 box3");
    job_grows_to_box3(f, job);
    rank_lacks_data(f, job, 2);
    assert_true(fixture_said(f, "box3 is left out for 10m00s"));
    assert_goes_on_without_box3(f, job, 5);
}

static void status_names_the_node(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = growing_job(f, ELASTIC SAVED);
    struct core_job_status status;
    struct err e;

    rank_lacks_data(f, job, 2);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_int_equal(strv_len(status.notes), 1);
    assert_string_equal(status.notes[0],
                        "box3 is left out for another 5m00s: rank 2 cannot run on box3: exit "
                        "code 78: " MISSING);
    core_job_status_release(&status);
    fixture_pass_beating(f, 310000, "box1 box2 box3");
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_int_equal(strv_len(status.notes), 0);
    core_job_status_release(&status);
}

static void private_logs_are_not_quoted(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = growing_job(f, "logs: private\n" ELASTIC SAVED);

    rank_lacks_data(f, job, 2);
    assert_true(fixture_said(f, "rank 2 cannot run on box3: exit code 78\n"));
    assert_false(fixture_said(f, MISSING));
}

/* A machine that was lost may have been repaired meanwhile. One that only connects again has hardly changed. */
static void a_node_that_comes_back_is_tried_again(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = growing_job(f, ELASTIC SAVED);

    rank_lacks_data(f, job, 2);
    assert_goes_on_without_box3(f, job, 3);
    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 60000, "box1 box2 box3");
    assert_int_equal(staying_handover(f, job), 0);
    fixture_pass_beating(f, 10000, "box1 box2"); /* it is lost */
    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 40000, "box1 box2 box3");
    job_grows_to_box3(f, job);
    staying_job_rejoin(f, job, 20);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* Their data is compared when all have joined, so all say that they can go on. */
static void two_nodes_with_other_data_are_both_left_out(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, "nodes: \"2:4\"\nprocs_per_node: 1\n" SAVED);

    fixture_node(f, "box3", 1);
    fixture_node(f, "box4", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3 box4");
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->world_size, 4);
    staying_job_rejoin(f, job, 20);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    rank_lacks_data(f, job, 2);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING); /* rank 3 is told to end */
    rank_lacks_data(f, job, 3);
    assert_true(fixture_said(f, "box3 is left out"));
    assert_true(fixture_said(f, "box4 is left out"));
    assert_goes_on_without_box3(f, job, 3);
}

/* Each generation has made no step, and each ends by the fault of another node. */
static void many_nodes_without_data_cost_no_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, "nodes: \"2:8\"\nprocs_per_node: 1\n" SAVED);

    for (int i = 3; i < 9; i++)
        fixture_node(f, (char[]){'b', 'o', 'x', (char)('0' + i), 0}, 1);
    fixture_pass_beating(f, 8000, "box1 box2 box3 box4 box5 box6 box7 box8");
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    for (int left = 6; left > 0; left--) {
        assert_int_equal(fixture_generation(f, job)->world_size, 2 + left);
        rank_lacks_data(f, job, 2);
        for (int i = 3; i < 9; i++)
            fixture_all_obey(f, (char[]){'b', 'o', 'x', (char)('0' + i), 0});
    }
    assert_goes_on_without_box3(f, job, 8);
    assert_int_equal(survivors_count_replacements(f->core, core_find_job(f->core, job)), 0);
}

static void a_resize_tries_all_nodes_again(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = growing_job(f, ELASTIC SAVED);

    rank_lacks_data(f, job, 2);
    assert_goes_on_without_box3(f, job, 3);
    assert_int_equal(fixture_resize(f, job, 3, 3), ERR_OK);
    job_grows_to_box3(f, job);
    rank_lacks_data(f, job, 2);
    assert_false(fixture_said(f, "10m00s")); /* it begins anew */
}

/* box2 is lost, and box3 takes its place. */
static void a_replacement_without_the_data_does_not_end_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 9000, "box1 box3");
    assert_string_equal(fixture_node_of(f, job, 1), "box3");
    rank_lacks_data(f, job, 1);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_all_obey(f, "box1");
    assert_string_equal(
        fixture_waits(f, job),
        "waits for 2 nodes with 1 slot each: the cluster has 1, box3 is left out for now (rank 1 "
        "cannot run on box3: exit code 78: " MISSING "), 1 more is lost or drained");
    fixture_node(f, "box2", 1);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    fixture_form(f, job);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* box2 lacks the data since its worker was killed. The job is tried again `tries` times; at the second try all processes are new. */
static int64_t job_tries_again(struct core_fixture *f, int tries)
{
    int64_t job = staying_job_on_two(f, TWO SAVED);

    fixture_exit(f, job, 1, 0, 9);
    assert_string_equal(fixture_node_of(f, job, 1), "box2");
    for (int i = 0; i < tries; i++) {
        rank_lacks_data(f, job, 1);
        assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
        fixture_all_obey(f, "box1");
        if (i == 1) {
            fixture_restart(f); /* box2 is tried at once */
            fixture_node(f, "box1", 1);
            fixture_node(f, "box2", 1);
        }
        fixture_pass_beating(f, i == 1 ? 2000 : 301000 << (i < 2 ? 0 : i - 2), "box1 box2");
        assert_int_equal(fixture_job(f, job), JOB_STARTING);
    }
    return job;
}

static void a_waiting_job_fails_no_later_try(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_tries_again(f, 3);

    fixture_form(f, job);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* The data may have been deleted on all nodes. */
static void a_job_that_waits_in_vain_fails(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_tries_again(f, 5);

    rank_lacks_data(f, job, 1);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
}

/* It runs on box1 and was stopped to grow to box2, which has no such directory. */
static int64_t command_without_box2(struct core_fixture *f)
{
    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "nodes: \"1:2\"\nmax_restarts: 0\n");
    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_RUNNING, .pid = 7});
    fixture_node(f, "box2", 1);
    fixture_pass_beating(f, 6000, "box1 box2");
    fixture_all_obey(f, "box1");
    assert_string_equal(fixture_node_of(f, job, 1), "box2");
    fixture_fact(
        f, job, 1,
        (struct spawn_fact){.state = SPAWN_EXITED, .not_started = true, .message = "workdir /x is missing"});
    fixture_all_obey(f, "box1");
    return job;
}

static void a_command_goes_on_without_a_node_that_lacks_it(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = command_without_box2(f);

    assert_true(fixture_said(f, "rank 1 cannot run on box2: workdir /x is missing"));
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->world_size, 1);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

/* It would lose the work since its last checkpoint. */
static void a_command_is_not_stopped_to_try_a_node_again(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = command_without_box2(f);
    struct core_job_status status;
    struct err e;

    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_RUNNING, .pid = 8});
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass_beating(f, 400000, "box1 box2");
    assert_int_equal(fixture_generation(f, job)->number, 3);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_string_equal(status.notes[0], "box2 is left out while the job runs: rank 1 cannot run on box2: "
                                         "workdir /x is missing");
    core_job_status_release(&status);
    fixture_pass_beating(f, 10000, "box1"); /* the machine has started again */
    fixture_node(f, "box2", 1);
    fixture_pass_beating(f, 40000, "box1 box2");
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
}

/* ---- the job is to blame */

static void an_error_after_a_step_ends_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = growing_job(f, ELASTIC SAVED);

    staying_job_rejoin(f, job, 20);
    fixture_report(f, job, 2, 21, "loss", 0.5);
    rank_lacks_data(f, job, 2);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
}

/* The rank's error ends the job. All obey. */
static void assert_error_ends_job(struct core_fixture *f, int64_t job, int rank)
{
    rank_lacks_data(f, job, rank);
    fixture_both_obey(f);
    if (fixture_job(f, job) != JOB_FAILED)
        fixture_all_obey(f, "box3");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
}

static void an_error_in_the_first_generation_ends_the_job(void **state)
{
    struct core_fixture *f = *state;

    assert_error_ends_job(f, staying_job_on_two(f, TWO SAVED), 1);
}

static void an_error_of_a_rank_that_goes_on_ends_the_job(void **state)
{
    struct core_fixture *f = *state;

    assert_error_ends_job(f, growing_job(f, ELASTIC SAVED), 0);
}

/* Nobody would see a job that waits for a node that does not exist. */
static void the_last_node_is_not_left_out(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = staying_job(f, SAVED);
    fixture_node(f, "box2", 1);
    fixture_pass_beating(f, 9000, "box2");
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    rank_lacks_data(f, job, 0);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
}

/* Its peers on the node have the data. */
static void a_node_on_which_ranks_go_on_is_not_left_out(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_node(f, "box2", 4);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    rank_lacks_data(f, job, 2);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
}

/* All processes are new, so the job may fail on all nodes, one after the other. */
static void a_job_without_survivors_fails_when_too_few_nodes_are_left(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    for (int i = 3; i < 6; i++)
        fixture_node(f, (char[]){'b', 'o', 'x', (char)('0' + i), 0}, 1);
    fixture_pass_beating(f, 9000, "box3 box4 box5");
    assert_string_equal(fixture_node_of(f, job, 0), "box3");
    rank_lacks_data(f, job, 0);
    fixture_all_obey(f, "box4");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 1), "box5");
    rank_lacks_data(f, job, 1);
    fixture_all_obey(f, "box4");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_node_without_the_data_is_left_out),
        TEST(status_names_the_node),
        TEST(private_logs_are_not_quoted),
        TEST(a_node_that_comes_back_is_tried_again),
        TEST(two_nodes_with_other_data_are_both_left_out),
        TEST(many_nodes_without_data_cost_no_survivors),
        TEST(a_resize_tries_all_nodes_again),
        TEST(a_replacement_without_the_data_does_not_end_the_job),
        TEST(a_waiting_job_fails_no_later_try),
        TEST(a_job_that_waits_in_vain_fails),
        TEST(a_command_goes_on_without_a_node_that_lacks_it),
        TEST(a_command_is_not_stopped_to_try_a_node_again),
        TEST(an_error_after_a_step_ends_the_job),
        TEST(an_error_in_the_first_generation_ends_the_job),
        TEST(an_error_of_a_rank_that_goes_on_ends_the_job),
        TEST(the_last_node_is_not_left_out),
        TEST(a_node_on_which_ranks_go_on_is_not_left_out),
        TEST(a_job_without_survivors_fails_when_too_few_nodes_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
