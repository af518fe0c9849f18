/* A running job gets more nodes or fewer: by itself, and by its user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

#define KEEPS TRAIN "  snapshot: {dir: /out, every: 10}\n"

static int64_t running_job(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, file);
    fixture_form(f, job);
    assert_int_equal(fixture_generation(f, job)->node_count, 1);
    return job;
}

static void nodes_obey(struct core_fixture *f, const char *first, const char *second)
{
    fixture_all_obey(f, first);
    if (second)
        fixture_all_obey(f, second);
}

static void a_running_job_grows_to_a_new_node(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:2\nmax_restarts: 0\n" KEEPS), spawn = fixture_spawn(f, job, 0);

    fixture_node(f, "box2", 2);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING); /* others may follow */
    fixture_pass_beating(f, 6000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_SNAPSHOT);
    assert_true(
        fixture_said(f, "generation 1: resize to 2 nodes: box2 joins (does not count as a restart)\n"));
    assert_int_equal(fixture_commit(f, job, spawn, 1, 40, "d"), ERR_OK);
    nodes_obey(f, "box1", "box2");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->node_count, 2);
    assert_string_equal(fixture_node_of(f, job, 0), "box1"); /* the former node keeps its rank */
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_false(core_generation(f->core, job, 1)->charged);
}

static void a_command_is_stopped_and_started_again(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:2\n");

    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 6000, "box1 box2");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    nodes_obey(f, "box1", NULL);
    assert_int_equal(fixture_generation(f, job)->node_count, 2);
}

static void three_new_nodes_cost_one_resize(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:4\n" KEEPS);

    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 4000, "box1 box2");
    fixture_node(f, "box3", 2);
    fixture_pass_beating(f, 4000, "box1 box2 box3");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_node(f, "box4", 2);
    fixture_pass_beating(f, 6000, "box1 box2 box3 box4");
    assert_true(fixture_said(f, "resize to 4 nodes: box2, box3, box4 join"));
    nodes_obey(f, "box1", NULL);
    assert_int_equal(fixture_generation(f, job)->node_count, 4);
    assert_int_equal(core_job(f->core, job)->generation, 2);
}

static void tell_gpu(struct core_fixture *f, uint64_t session, bool healthy)
{
    struct core_gpu gpus[2] = {{.uuid = (char *)"GPU-box1-0", .index = 0, .healthy = healthy},
                               {.uuid = (char *)"GPU-box1-1", .index = 1, .healthy = true}};
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = session};

    event.heartbeat.gpus = gpus;
    event.heartbeat.gpu_count = 2;
    core_event(f->core, &event, f->now, &f->out);
}

/* It takes all GPUs of a node, and one of them has been sick and is now held by others: if it stopped for
 * another node it would lose this one. */
static void a_job_that_could_not_return_to_its_node_does_not_grow(void **state)
{
    struct core_fixture *f = *state;

    f->gpu_slots = 2;
    uint64_t session = fixture_hello(f, "box1", "box1", 4, 2);
    fixture_facts(f, "box1", NULL, 0);
    int64_t first = fixture_submit(f, "gpus_per_proc: 1\n"), second = fixture_submit(f, "gpus_per_proc: 1\n");
    int64_t third = fixture_submit(f, "gpus_per_proc: 1\n"), fourth = fixture_submit(f, "gpus_per_proc: 1\n");
    fixture_all_run(f, "box1");
    fixture_exit(f, second, 0, 0, 0);
    fixture_exit(f, fourth, 0, 0, 0); /* the others hold GPU 0 */
    tell_gpu(f, session, false);
    int64_t job = fixture_submit(f, "nodes: 1:2\ngpus_per_proc: all\n");
    fixture_form(f, job);
    tell_gpu(f, session, true);
    fixture_hello(f, "box2", "box2", 4, 2);
    fixture_facts(f, "box2", NULL, 0);
    fixture_pass_beating(f, 60000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_exit(f, first, 0, 0, 0);
    fixture_exit(f, third, 0, 0, 0);
    fixture_pass_beating(f, 60000, "box1 box2");
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_generation(f, job)->node_count, 2);
}

/* New arrivals delay the growth only up to the last call. */
static void new_arrivals_delay_growth_only_so_long(void **state)
{
    struct core_fixture *f = *state;
    char all[256] = "box1", name[16];
    int64_t job = running_job(f, "nodes: 1:99\n" KEEPS);
    int i;

    for (i = 2; i < 20 && fixture_job(f, job) == JOB_RUNNING; i++) {
        snprintf(name, sizeof(name), "box%d", i);
        fixture_node(f, name, 1);
        strcat(strcat(all, " "), name);
        fixture_pass_beating(f, 4000, all);
    }
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_in_range(i, 7, 11);
}

static void a_node_that_leaves_again_stops_no_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:2\n" KEEPS);

    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 3000, "box1 box2");
    fixture_operator(f, CORE_DRAIN, "box2");
    fixture_pass_beating(f, 60000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(core_job(f->core, job)->generation, 1);
}

/* A node that is lost soon after each return is offered later each time. */
static void a_flapping_node_must_stay_longer(void **state)
{
    struct core_fixture *f = *state;

    for (int i = 0; i < 3; i++) {
        fixture_node(f, "box2", 2);
        fixture_pass_beating(f, 12000, "");
        assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST);
    }
    int64_t job = running_job(f, "nodes: 1:2\n" KEEPS);
    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 36000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_pass_beating(f, 12000, "box1 box2"); /* 40 s, and then the usual 5 */
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

static void nodes_that_other_jobs_wait_for_are_not_offered(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:3\n" KEEPS);
    int64_t head = fixture_submit(f, "nodes: 2\nprocs_per_node: 2\n");

    fixture_node(f, "box2", 2); /* reserved for the head, which waits for another node */
    fixture_pass_beating(f, 30000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_node(f, "box3", 2);
    assert_int_equal(fixture_job(f, head), JOB_STARTING);
    assert_int_equal(core_job(f->core, job)->generation, 1);
}

static void nodes_for_growth_are_reserved(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:2\nprocs_per_node: 2\n" KEEPS);

    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 6000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    int64_t other = fixture_submit(f, "procs_per_node: 2\npriority: 9\n");
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    nodes_obey(f, "box1", NULL);
    assert_int_equal(fixture_generation(f, job)->node_count, 2);
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
}

static void a_job_without_snapshots_does_not_grow(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:2\n" TRAIN); /* no snapshots */

    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 60000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void a_job_that_ends_soon_does_not_grow(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:2\n" KEEPS);

    fixture_report(f, job, 0, 4000, NULL, 0);
    fixture_pass_beating(f, 2000, "box1");
    fixture_report(f, job, 0, 4500, NULL, 0); /* the last 500 take 2 s */
    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 30000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
}

/* A command that ended before it was told to stop is not run a second time. */
static void commands_that_finish_before_the_stop_succeed(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:2\n");

    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 6000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
    assert_int_equal(core_job(f->core, job)->generation, 1);
}

static void a_stopped_command_that_exits_with_zero_continues(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "nodes: 1:2\n");

    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 6000, "box1 box2");
    fixture_fact(f, job, 0, (struct spawn_fact){.state = SPAWN_EXITED, .stopped = true});
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void a_resize_to_fewer_nodes_is_immediate(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    int64_t job = fixture_submit(f, "nodes: 2\nmax_restarts: 0\n" KEEPS);
    fixture_form(f, job);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_SNAPSHOT);
    assert_true(fixture_said(f, "resized from 2 nodes to 1 node by the user\n"));
    assert_true(fixture_said(f, "generation 1: resize to 1 node (does not count as a restart)\n"));
    nodes_obey(f, "box1", "box2");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->node_count, 1);
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    fixture_form(f, job);
    fixture_pass_beating(f, 60000, "box1 box2"); /* the limits are those of the user */
    assert_int_equal(core_job(f->core, job)->generation, 2);
}

static void a_resize_to_more_nodes_takes_the_free_ones(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, KEEPS);

    fixture_node(f, "box2", 2);
    assert_int_equal(fixture_resize(f, job, 2, 2), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING); /* no settling */
    nodes_obey(f, "box1", NULL);
    assert_int_equal(fixture_generation(f, job)->node_count, 2);
}

/* A resize is about the nodes that are free at that moment. */
static void nodes_that_come_after_a_resize_must_settle(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, KEEPS);

    assert_int_equal(fixture_resize(f, job, 2, 3), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING); /* continues on its node */
    fixture_pass_beating(f, 60000, "box1");
    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 4000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_node(f, "box3", 2);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    nodes_obey(f, "box1", NULL);
    assert_int_equal(fixture_generation(f, job)->node_count, 3);
}

static void nodes_that_come_after_a_resize_do_not_cost_work(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, TRAIN); /* no snapshots */

    assert_int_equal(fixture_resize(f, job, 2, 2), ERR_OK);
    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 60000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* reproducible: world with 4 shards runs in a world of 1, 2 or 4. */
static void a_world_size_grows_to_a_divisor(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, "nodes: 1:4\n" WORLD);
    fixture_form(f, job);
    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 60000, "box1 box2 box3");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING); /* 3 do not */
    fixture_node(f, "box4", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3 box4");
    assert_true(fixture_said(f, "resize to 4 nodes: box3, box4 join"));
    nodes_obey(f, "box1", "box2");
    assert_int_equal(fixture_generation(f, job)->world_size, 4);
}

static void a_world_size_shrinks_to_a_divisor(void **state)
{
    struct core_fixture *f = *state;
    char name[16];

    for (int i = 1; i <= 4; i++) {
        snprintf(name, sizeof(name), "box%d", i);
        fixture_node(f, name, 1);
    }
    int64_t job = fixture_submit(f, "nodes: 1:4\n" WORLD);
    fixture_form(f, job);
    assert_int_equal(fixture_resize(f, job, 1, 3), ERR_OK);
    assert_true(fixture_said(f, "generation 1: resize to 2 nodes (does not count as a restart)\n"));
    for (int i = 1; i <= 4; i++) {
        snprintf(name, sizeof(name), "box%d", i);
        fixture_all_obey(f, name);
    }
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
}

static void a_lost_node_leaves_a_world_size_that_divides(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    fixture_node(f, "box4", 1);
    int64_t job = fixture_submit(f, "nodes: 1:4\n" WORLD);
    fixture_form(f, job);
    assert_int_equal(fixture_generation(f, job)->world_size, 4);
    for (int i = 0; i < 60 && core_job(f->core, job)->generation == 1; i++) {
        fixture_pass_beating(f, 2000, "box1 box2 box3");
        fixture_all_obey(f, "box1");
        fixture_all_obey(f, "box2");
        fixture_all_obey(f, "box3");
    }
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
}

static void a_resize_without_a_possible_world_size_is_refused(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, WORLD);

    assert_int_equal(fixture_resize(f, job, 3, 3), ERR_INVALID_ARGUMENT);
    assert_int_equal(fixture_resize(f, job, 5, 9), ERR_INVALID_ARGUMENT);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(fixture_resize(f, job, 3, 4), ERR_OK);
}

static void a_resize_survives_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, KEEPS);

    assert_int_equal(fixture_resize(f, job, 1, 2), ERR_OK);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 2, 0);
    fixture_all_run(f, "box1");
    fixture_node(f, "box2", 2);
    fixture_pass_beating(f, 6000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

static void a_queued_job_is_resized_in_place(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, "nodes: 3\n");

    fixture_node(f, "box1", 2);
    assert_int_equal(fixture_job(f, job), JOB_QUEUED);
    assert_int_equal(fixture_resize(f, job, 1, 3), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void a_resize_of_an_ended_job_is_refused(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "");

    assert_int_equal(fixture_resize(f, 99, 1, 1), ERR_NOT_FOUND);
    assert_int_equal(fixture_resize(f, job, 0, 1), ERR_INVALID_ARGUMENT);
    assert_int_equal(fixture_resize(f, job, 3, 2), ERR_INVALID_ARGUMENT);
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_FAILED_PRECONDITION);
    assert_int_equal(fixture_restart_job(f, job), ERR_FAILED_PRECONDITION);
}

static void a_users_restart_does_not_count(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = running_job(f, "max_restarts: 0\n" KEEPS);

    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_SNAPSHOT);
    nodes_obey(f, "box1", NULL);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_true(fixture_said(f, "generation 1: restarted by the user (does not count as a restart)\n"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_running_job_grows_to_a_new_node),
        TEST(a_command_is_stopped_and_started_again),
        TEST(three_new_nodes_cost_one_resize),
        TEST(a_job_that_could_not_return_to_its_node_does_not_grow),
        TEST(new_arrivals_delay_growth_only_so_long),
        TEST(a_node_that_leaves_again_stops_no_job),
        TEST(a_flapping_node_must_stay_longer),
        TEST(nodes_that_other_jobs_wait_for_are_not_offered),
        TEST(nodes_for_growth_are_reserved),
        TEST(a_job_without_snapshots_does_not_grow),
        TEST(a_job_that_ends_soon_does_not_grow),
        TEST(commands_that_finish_before_the_stop_succeed),
        TEST(a_stopped_command_that_exits_with_zero_continues),
        TEST(a_resize_to_fewer_nodes_is_immediate),
        TEST(a_resize_to_more_nodes_takes_the_free_ones),
        TEST(nodes_that_come_after_a_resize_must_settle),
        TEST(nodes_that_come_after_a_resize_do_not_cost_work),
        TEST(a_world_size_grows_to_a_divisor),
        TEST(a_world_size_shrinks_to_a_divisor),
        TEST(a_lost_node_leaves_a_world_size_that_divides),
        TEST(a_resize_without_a_possible_world_size_is_refused),
        TEST(a_resize_survives_a_coordinator_restart),
        TEST(a_queued_job_is_resized_in_place),
        TEST(a_resize_of_an_ended_job_is_refused),
        TEST(a_users_restart_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
