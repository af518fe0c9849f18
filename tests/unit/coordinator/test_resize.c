/* More nodes for a job that runs, or fewer: by itself, and by its user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core_test.h"

#define KEEPS TRAIN "  snapshot: {dir: /out, every: 10}\n"

static int64_t running_job(struct bench *b, const char *file)
{
    bench_node(b, "box1", 2);
    int64_t job = bench_submit(b, file);
    bench_form(b, job);
    assert_int_equal(bench_generation(b, job)->node_count, 1);
    return job;
}

static void obey(struct bench *b, const char *first, const char *second)
{
    bench_all_obey(b, first);
    if (second)
        bench_all_obey(b, second);
}

static void a_node_that_joins_is_taken_in(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:2\nmax_restarts: 0\n" KEEPS), spawn = bench_spawn(b, job, 0);

    bench_node(b, "box2", 2);
    assert_int_equal(bench_job(b, job), JOB_RUNNING); /* others may follow */
    bench_pass_beating(b, 6000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_SNAPSHOT);
    assert_true(bench_said(b, "generation 1: resize to 2 nodes: box2 joins (not charged)\n"));
    assert_int_equal(bench_commit(b, job, spawn, 1, 40, "d"), ERR_OK);
    obey(b, "box1", "box2");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(bench_generation(b, job)->node_count, 2);
    assert_string_equal(bench_node_of(b, job, 0), "box1"); /* who was there keeps its rank */
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    assert_false(core_generation(b->core, job, 1)->charged);
}

static void a_command_is_stopped_and_started_again(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:2\n");

    bench_node(b, "box2", 2);
    bench_pass_beating(b, 6000, "box1 box2");
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_TERM);
    obey(b, "box1", NULL);
    assert_int_equal(bench_generation(b, job)->node_count, 2);
}

static void three_that_arrive_make_one_resize(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:4\n" KEEPS);

    bench_node(b, "box2", 2);
    bench_pass_beating(b, 4000, "box1 box2");
    bench_node(b, "box3", 2);
    bench_pass_beating(b, 4000, "box1 box2 box3");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_node(b, "box4", 2);
    bench_pass_beating(b, 6000, "box1 box2 box3 box4");
    assert_true(bench_said(b, "resize to 4 nodes: box2, box3, box4 join"));
    obey(b, "box1", NULL);
    assert_int_equal(bench_generation(b, job)->node_count, 4);
    assert_int_equal(core_job(b->core, job)->generation, 2);
}

static void tell_gpu(struct bench *b, uint64_t session, bool healthy)
{
    struct core_gpu gpus[2] = {{.uuid = (char *)"GPU-box1-0", .index = 0, .healthy = healthy},
                               {.uuid = (char *)"GPU-box1-1", .index = 1, .healthy = true}};
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = session};

    event.heartbeat.gpus = gpus;
    event.heartbeat.gpu_count = 2;
    core_event(b->core, &event, b->now, &b->out);
}

/* It takes all GPUs of a node, and one of them has been sick and is now held by others: if it stopped for
 * another node it would lose this one. */
static void a_job_that_could_not_return_to_its_node_does_not_grow(void **state)
{
    struct bench *b = *state;

    b->gpu_slots = 2;
    uint64_t session = bench_hello(b, "box1", "box1", 4, 2);
    bench_facts(b, "box1", NULL, 0);
    int64_t first = bench_submit(b, "gpus_per_proc: 1\n"), second = bench_submit(b, "gpus_per_proc: 1\n");
    int64_t third = bench_submit(b, "gpus_per_proc: 1\n"), fourth = bench_submit(b, "gpus_per_proc: 1\n");
    bench_all_run(b, "box1");
    bench_exit(b, second, 0, 0, 0);
    bench_exit(b, fourth, 0, 0, 0); /* the others hold GPU 0 */
    tell_gpu(b, session, false);
    int64_t job = bench_submit(b, "nodes: 1:2\ngpus_per_proc: all\n");
    bench_form(b, job);
    tell_gpu(b, session, true);
    bench_hello(b, "box2", "box2", 4, 2);
    bench_facts(b, "box2", NULL, 0);
    bench_pass_beating(b, 60000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_exit(b, first, 0, 0, 0);
    bench_exit(b, third, 0, 0, 0);
    bench_pass_beating(b, 60000, "box1 box2");
    bench_all_obey(b, "box1");
    assert_int_equal(bench_generation(b, job)->node_count, 2);
}

/* Arrivals that never end put it off only so long. */
static void the_last_call_ends(void **state)
{
    struct bench *b = *state;
    char all[256] = "box1", name[16];
    int64_t job = running_job(b, "nodes: 1:99\n" KEEPS);
    int i;

    for (i = 2; i < 20 && bench_job(b, job) == JOB_RUNNING; i++) {
        snprintf(name, sizeof(name), "box%d", i);
        bench_node(b, name, 1);
        strcat(strcat(all, " "), name);
        bench_pass_beating(b, 4000, all);
    }
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    assert_in_range(i, 7, 11);
}

static void one_that_goes_again_disturbs_nobody(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:2\n" KEEPS);

    bench_node(b, "box2", 2);
    bench_pass_beating(b, 3000, "box1 box2");
    bench_operator(b, CORE_DRAIN, "box2");
    bench_pass_beating(b, 60000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    assert_int_equal(core_job(b->core, job)->generation, 1);
}

/* A node that is lost soon after each return counts later each time. */
static void one_that_flaps_has_to_stay_longer(void **state)
{
    struct bench *b = *state;

    for (int i = 0; i < 3; i++) {
        bench_node(b, "box2", 2);
        bench_pass_beating(b, 12000, "");
        assert_int_equal(bench_node_state(b, "box2"), NODE_LOST);
    }
    int64_t job = running_job(b, "nodes: 1:2\n" KEEPS);
    bench_node(b, "box2", 2);
    bench_pass_beating(b, 36000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_pass_beating(b, 12000, "box1 box2"); /* 40 s, and then the usual 5 */
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
}

static void what_others_wait_for_is_not_taken(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:3\n" KEEPS);
    int64_t head = bench_submit(b, "nodes: 2\nprocs_per_node: 2\n");

    bench_node(b, "box2", 2); /* kept for the head, which waits for another */
    bench_pass_beating(b, 30000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_node(b, "box3", 2);
    assert_int_equal(bench_job(b, head), JOB_STARTING);
    assert_int_equal(core_job(b->core, job)->generation, 1);
}

static void what_it_stops_for_is_kept_for_it(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:2\nprocs_per_node: 2\n" KEEPS);

    bench_node(b, "box2", 2);
    bench_pass_beating(b, 6000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    int64_t other = bench_submit(b, "procs_per_node: 2\npriority: 9\n");
    assert_int_equal(bench_job(b, other), JOB_QUEUED);
    obey(b, "box1", NULL);
    assert_int_equal(bench_generation(b, job)->node_count, 2);
    assert_int_equal(bench_job(b, other), JOB_QUEUED);
}

static void what_would_lose_its_work_is_left_alone(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:2\n" TRAIN); /* no snapshots */

    bench_node(b, "box2", 2);
    bench_pass_beating(b, 60000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
}

static void what_ends_soon_is_left_alone(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:2\n" KEEPS);

    bench_report(b, job, 0, 4000, NULL, 0);
    bench_pass_beating(b, 2000, "box1");
    bench_report(b, job, 0, 4500, NULL, 0); /* the last 500 take 2 s */
    bench_node(b, "box2", 2);
    bench_pass_beating(b, 30000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_exit(b, job, 0, 0, 0);
    assert_int_equal(bench_job(b, job), JOB_SUCCEEDED);
}

/* A command that ended before the word to stop had reached it is not run a second time. */
static void an_end_that_overtakes_the_stop_counts(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:2\n");

    bench_node(b, "box2", 2);
    bench_pass_beating(b, 6000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    bench_exit(b, job, 0, 0, 0);
    assert_int_equal(bench_job(b, job), JOB_SUCCEEDED);
    assert_int_equal(core_job(b->core, job)->generation, 1);
}

static void one_that_obeys_with_zero_goes_on(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "nodes: 1:2\n");

    bench_node(b, "box2", 2);
    bench_pass_beating(b, 6000, "box1 box2");
    bench_fact(b, job, 0, (struct core_fact){.state = FACT_EXITED, .stopped = true});
    assert_int_equal(bench_job(b, job), JOB_STARTING);
}

static void the_user_shrinks_it_at_once(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 2);
    bench_node(b, "box2", 2);
    int64_t job = bench_submit(b, "nodes: 2\nmax_restarts: 0\n" KEEPS);
    bench_form(b, job);
    assert_int_equal(bench_resize(b, job, 1, 1), ERR_OK);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_SNAPSHOT);
    assert_true(bench_said(b, "resized from 2 nodes to 1 node by the user\n"));
    assert_true(bench_said(b, "generation 1: resize to 1 node (not charged)\n"));
    obey(b, "box1", "box2");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(bench_generation(b, job)->node_count, 1);
    assert_string_equal(bench_node_of(b, job, 0), "box1");
    bench_form(b, job);
    bench_pass_beating(b, 60000, "box1 box2"); /* it stays what the user said */
    assert_int_equal(core_job(b->core, job)->generation, 2);
}

static void the_user_grows_it_to_what_is_free(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, KEEPS);

    bench_node(b, "box2", 2);
    assert_int_equal(bench_resize(b, job, 2, 2), ERR_OK);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING); /* no settling */
    obey(b, "box1", NULL);
    assert_int_equal(bench_generation(b, job)->node_count, 2);
}

/* The user's word is for what is free when it is said. */
static void what_comes_after_a_resize_settles(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, KEEPS);

    assert_int_equal(bench_resize(b, job, 2, 3), ERR_OK);
    assert_int_equal(bench_job(b, job), JOB_RUNNING); /* goes on on the one it has */
    bench_pass_beating(b, 60000, "box1");
    bench_node(b, "box2", 2);
    bench_pass_beating(b, 4000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_node(b, "box3", 2);
    bench_pass_beating(b, 6000, "box1 box2 box3");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    obey(b, "box1", NULL);
    assert_int_equal(bench_generation(b, job)->node_count, 3);
}

static void what_comes_after_a_resize_spares_the_work(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, TRAIN); /* no snapshots */

    assert_int_equal(bench_resize(b, job, 2, 2), ERR_OK);
    bench_node(b, "box2", 2);
    bench_pass_beating(b, 60000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
}

/* reproducible: world with 4 shards runs in a world of 1, 2 or 4. */
static void a_world_grows_to_one_that_divides(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    int64_t job = bench_submit(b, "nodes: 1:4\n" WORLD);
    bench_form(b, job);
    bench_node(b, "box3", 1);
    bench_pass_beating(b, 60000, "box1 box2 box3");
    assert_int_equal(bench_job(b, job), JOB_RUNNING); /* 3 do not */
    bench_node(b, "box4", 1);
    bench_pass_beating(b, 6000, "box1 box2 box3 box4");
    assert_true(bench_said(b, "resize to 4 nodes: box3, box4 join"));
    obey(b, "box1", "box2");
    assert_int_equal(bench_generation(b, job)->world_size, 4);
}

static void a_world_shrinks_to_one_that_divides(void **state)
{
    struct bench *b = *state;
    char name[16];

    for (int i = 1; i <= 4; i++) {
        snprintf(name, sizeof(name), "box%d", i);
        bench_node(b, name, 1);
    }
    int64_t job = bench_submit(b, "nodes: 1:4\n" WORLD);
    bench_form(b, job);
    assert_int_equal(bench_resize(b, job, 1, 3), ERR_OK);
    assert_true(bench_said(b, "generation 1: resize to 2 nodes (not charged)\n"));
    for (int i = 1; i <= 4; i++) {
        snprintf(name, sizeof(name), "box%d", i);
        bench_all_obey(b, name);
    }
    assert_int_equal(bench_generation(b, job)->world_size, 2);
}

static void a_lost_node_leaves_a_world_that_divides(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    bench_node(b, "box3", 1);
    bench_node(b, "box4", 1);
    int64_t job = bench_submit(b, "nodes: 1:4\n" WORLD);
    bench_form(b, job);
    assert_int_equal(bench_generation(b, job)->world_size, 4);
    for (int i = 0; i < 60 && core_job(b->core, job)->generation == 1; i++) {
        bench_pass_beating(b, 2000, "box1 box2 box3");
        bench_all_obey(b, "box1");
        bench_all_obey(b, "box2");
        bench_all_obey(b, "box3");
    }
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(bench_generation(b, job)->world_size, 2);
}

static void a_world_that_never_divides_is_refused(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, WORLD);

    assert_int_equal(bench_resize(b, job, 3, 3), ERR_INVALID_ARGUMENT);
    assert_int_equal(bench_resize(b, job, 5, 9), ERR_INVALID_ARGUMENT);
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    assert_int_equal(bench_resize(b, job, 3, 4), ERR_OK);
}

static void a_resize_outlives_the_coordinator(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, KEEPS);

    assert_int_equal(bench_resize(b, job, 1, 2), ERR_OK);
    bench_restart(b);
    bench_hello(b, "box1", "box1", 2, 0);
    bench_all_run(b, "box1");
    bench_node(b, "box2", 2);
    bench_pass_beating(b, 6000, "box1 box2");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
}

static void a_queued_job_is_resized_in_place(void **state)
{
    struct bench *b = *state;
    int64_t job = bench_submit(b, "nodes: 3\n");

    bench_node(b, "box1", 2);
    assert_int_equal(bench_job(b, job), JOB_QUEUED);
    assert_int_equal(bench_resize(b, job, 1, 3), ERR_OK);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
}

static void what_cannot_be_resized_is_refused(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "");

    assert_int_equal(bench_resize(b, 99, 1, 1), ERR_NOT_FOUND);
    assert_int_equal(bench_resize(b, job, 0, 1), ERR_INVALID_ARGUMENT);
    assert_int_equal(bench_resize(b, job, 3, 2), ERR_INVALID_ARGUMENT);
    bench_exit(b, job, 0, 0, 0);
    assert_int_equal(bench_resize(b, job, 1, 1), ERR_FAILED_PRECONDITION);
    assert_int_equal(bench_restart_job(b, job), ERR_FAILED_PRECONDITION);
}

static void a_restart_is_charged_to_nobody(void **state)
{
    struct bench *b = *state;
    int64_t job = running_job(b, "max_restarts: 0\n" KEEPS);

    assert_int_equal(bench_restart_job(b, job), ERR_OK);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_SNAPSHOT);
    obey(b, "box1", NULL);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    assert_true(bench_said(b, "generation 1: restarted by the user (not charged)\n"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_node_that_joins_is_taken_in),
        TEST(a_command_is_stopped_and_started_again),
        TEST(three_that_arrive_make_one_resize),
        TEST(a_job_that_could_not_return_to_its_node_does_not_grow),
        TEST(the_last_call_ends),
        TEST(one_that_goes_again_disturbs_nobody),
        TEST(one_that_flaps_has_to_stay_longer),
        TEST(what_others_wait_for_is_not_taken),
        TEST(what_it_stops_for_is_kept_for_it),
        TEST(what_would_lose_its_work_is_left_alone),
        TEST(what_ends_soon_is_left_alone),
        TEST(an_end_that_overtakes_the_stop_counts),
        TEST(one_that_obeys_with_zero_goes_on),
        TEST(the_user_shrinks_it_at_once),
        TEST(the_user_grows_it_to_what_is_free),
        TEST(what_comes_after_a_resize_settles),
        TEST(what_comes_after_a_resize_spares_the_work),
        TEST(a_world_grows_to_one_that_divides),
        TEST(a_world_shrinks_to_one_that_divides),
        TEST(a_lost_node_leaves_a_world_that_divides),
        TEST(a_world_that_never_divides_is_refused),
        TEST(a_resize_outlives_the_coordinator),
        TEST(a_queued_job_is_resized_in_place),
        TEST(what_cannot_be_resized_is_refused),
        TEST(a_restart_is_charged_to_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
