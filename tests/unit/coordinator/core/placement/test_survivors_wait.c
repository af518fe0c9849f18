/* Workers that have outlived a generation of their train job and wait for the next one. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/placement/staying_job.h"

static void survivors_wait_until_the_others_are_dead(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);
    uint64_t watch = fixture_watch(f, job, 1), left;

    f->stays = false;
    left = fixture_watch(f, job, 4);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_string_equal(staying_watch_says(f, watch), "wait");
    assert_string_equal(staying_watch_says(f, left), "over");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL); /* it has nothing to save */
    assert_string_equal(fixture_waits(f, job), "waits until rank 3 of generation 1 is known dead on box1");
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(staying_watch_says(f, watch), "member");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 3), 6);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

/* Rank 3 has nothing to save and may hang. The survivors may end in order. */
static void giving_survivors_up_does_not_soften_a_kill(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);

    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL);
    fixture_cancel(f, job, false);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL);
}

/* It is stuck in the kernel for a moment, and nobody has killed it. */
static void a_survivor_is_not_given_up_with_the_killed(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);
    struct job *of = core_find_job(f->core, job);

    of->spawns[0]->proc_state = 'D';
    fixture_pass_beating(f, 25000, "box1");
    assert_false(of->spawns[0]->r.dead);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
}

static void a_job_that_finds_no_place_gives_its_survivors_up(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    int64_t job = staying_job(f, "nodes: 2\nprocs_per_node: 2\n" SAVED);
    int64_t other = fixture_submit(f, "procs_per_node: 2\n");
    uint64_t watch = fixture_watch(f, job, 1);

    fixture_pass_beating(f, 9000, "box1"); /* box2 is lost */
    assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_string_equal(staying_watch_says(f, watch), "over");
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_true(core_generation(f->core, job, 1)->charged);
    assert_true(
        fixture_said(f, "generation 1 closed (2 of 4 ranks can go on; replacement 1 of 20 in a day)"));
    assert_true(fixture_said(
        f, "no rank of generation 1 can continue because the job cannot be placed on the free nodes now: "
           "restart 1 of 3"));
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
}

/* Nothing but its own old worker keeps the job from going on, so its slots are not for others. */
static void no_other_job_gets_the_slots_of_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);
    int64_t other = fixture_submit(f, "priority: 9\n");

    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    fixture_node(f, "box2", 1);
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
}

static void cancelling_ends_waiting_survivors(void **state)
{
    struct core_fixture *f = *state;

    for (int kill = 0; kill < 2; kill++) {
        int64_t job = staying_job_waits(f, FOUR SAVED);
        uint64_t watch = fixture_watch(f, job, 1);
        fixture_cancel(f, job, kill);
        assert_string_equal(staying_watch_says(f, watch), "over");
        assert_int_equal(fixture_stop(f, job, 0), kill ? CORE_STOP_KILL : CORE_STOP_TERM);
        fixture_all_obey(f, "box1");
        assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
        assert_int_equal(staying_record(f, job)->restarts_used, 0);
        f->stays = false;
    }
}

static void starting_from_scratch_ends_waiting_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR "max_restarts: 0\n" SAVED);

    assert_int_equal(fixture_from_scratch(f, job), ERR_OK);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_spawn(f, job, 0), 5);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

static void a_time_limit_ends_waiting_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR "time_limit: 20s\n" SAVED);

    fixture_pass_beating(f, 21000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

static void a_lost_node_takes_its_waiting_survivors_with_it(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);

    fixture_pass(f, 10000);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
    assert_true(staying_spawn(f, job, 1)->r.revoked);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
}

/* The survivors on the other nodes go on waiting. */
static void only_survivors_on_a_lost_node_are_lost(void **state)
{
    struct core_fixture *f = *state;

    for (int i = 0; i < 3; i++)
        fixture_node(f, (const char *[]){"box1", "box2", "box3"}[i], 2);
    int64_t job = staying_job(f, "nodes: 2\nprocs_per_node: 2\n" SAVED);
    f->stays = false;
    fixture_watch(f, job, 2); /* does not stay, so the others wait for its end */
    f->stays = true;
    uint64_t here = fixture_watch(f, job, 1), there = fixture_watch(f, job, 4);
    fixture_exit(f, job, 2, 0, 9);
    fixture_pass_beating(f, 9000, "box1 box3");
    assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST);
    assert_string_equal(staying_watch_says(f, there), "over");
    assert_string_equal(staying_watch_says(f, here), "wait");
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_string_equal(fixture_node_of(f, job, 2), "box3");
}

/* The coordinator restarts while survivors wait: their node is not connected yet, and nobody has said that they stay. */
static void survivors_wait_for_a_coordinator_that_restarts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);

    fixture_restart(f);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    uint64_t watch = fixture_watch(f, job, 1);
    assert_string_equal(staying_watch_says(f, watch), "wait");
    fixture_hello(f, "box1", "box1", 4, 0);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_non_null(
        strstr(fixture_waits(f, job), "waits until box1 says whether rank 1 of generation 1 still runs"));
    fixture_watch(f, job, 2);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(staying_watch_says(f, watch), "member");
    assert_int_equal(fixture_spawn(f, job, 1), 2);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    assert_false(core_generation(f->core, job, 1)->charged);
}

/* A rank dies while the coordinator is away. Its agent says so before the others can say again that they stay. */
static void workers_stay_that_could_not_say_so_yet(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_run(f, "box1");
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    for (int64_t spawn = 1; spawn <= 4; spawn++)
        if (spawn != 3)
            fixture_watch(f, job, spawn);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 2), 5);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

/* The same, and they say that they do not stay. */
static void workers_that_do_not_stay_say_so_later(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_run(f, "box1");
    fixture_exit(f, job, 2, 0, 9);
    f->stays = false;
    for (int64_t spawn = 1; spawn <= 4; spawn++)
        if (spawn != 3)
            assert_string_equal(staying_watch_says(f, fixture_watch(f, job, spawn)), "over");
    fixture_all_obey(f, "box1");
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

/* The job must not stay on a node, and its next generation forms already, with states that its workers brought. */
static void a_drain_keeps_the_states_of_a_generation_that_forms(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_FORMING);
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    assert_int_equal(core_generation(f->core, job, 2)->state, GENERATION_CLOSED);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_generation(f, job)->number, 3);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(fixture_spawn(f, job, rank), rank == 2 ? 6 : rank + 1);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

static void from_scratch_keeps_no_state_of_a_generation_that_forms(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_from_scratch(f, job), ERR_OK);
    fixture_all_obey(f, "box1");
    for (int rank = 0; rank < 4; rank++)
        assert_true(fixture_spawn(f, job, rank) > 5);
}

/* An agent restarts: its node is not connected for a moment, and its workers live. */
static void survivors_wait_for_an_agent_that_restarts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);

    core_event(f->core,
               &(struct core_event){.kind = CORE_SESSION_CLOSED,
                                    .session = core_find_node(f->core, "box1")->session},
               f->now, &f->out);
    fixture_pass(f, 2000);
    assert_false(staying_spawn(f, job, 1)->r.revoked);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
}

/* A node that rests would keep them waiting for half a minute. */
static void survivors_do_not_wait_for_a_node_that_rests(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    fixture_fact(f, job, 2,
                 (struct spawn_fact){.state = SPAWN_EXITED, .not_started = true, .node_trouble = true});
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_int_equal(staying_record(f, job)->restarts_used, 0); /* a failure of the node never counts */
}

/* A process of the job's node that nobody knows keeps the node from getting work, perhaps for long. */
static void survivors_do_not_wait_for_ever(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);
    struct spawn_fact facts[] = {
        {.job = job, .spawn = 1, .state = SPAWN_RUNNING},
        {.job = job, .spawn = 2, .state = SPAWN_RUNNING},
        {.job = job, .spawn = 4, .state = SPAWN_EXITED, .signal = 9, .stopped = true},
        {.job = job, .spawn = 99, .state = SPAWN_RUNNING},
    };

    fixture_facts(f, "box1", facts, ARRAY_LEN(facts));
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_pass_beating(f, 59000, "box1");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_pass_beating(f, 2000, "box1");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
}

/* Words about the last generation do not concern the next one. */
static void a_late_watch_says_nothing_about_the_next_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);
    struct core_event event = {.kind = CORE_WATCH, .call = 7777, .watch = {.generation = 1, .stays = true}};

    fixture_exit(f, job, 2, 0, 9);
    staying_job_rejoin(f, job, 20);
    event.member.job = job;
    event.member.spawn = 1;
    event.watch.failed_step = 30;
    core_event(f->core, &event, f->now, &f->out);
    assert_string_equal(staying_watch_says(f, 7777), "member");
    assert_int_equal(fixture_reply(f, 7777)->generation, 2);
    bool pending;
    assert_int_equal(fixture_commit_part(f, job, 0, 30, 4, "d", &pending), ERR_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(survivors_wait_until_the_others_are_dead),
        TEST(giving_survivors_up_does_not_soften_a_kill),
        TEST(a_survivor_is_not_given_up_with_the_killed),
        TEST(a_job_that_finds_no_place_gives_its_survivors_up),
        TEST(no_other_job_gets_the_slots_of_survivors),
        TEST(cancelling_ends_waiting_survivors),
        TEST(starting_from_scratch_ends_waiting_survivors),
        TEST(a_time_limit_ends_waiting_survivors),
        TEST(a_lost_node_takes_its_waiting_survivors_with_it),
        TEST(only_survivors_on_a_lost_node_are_lost),
        TEST(survivors_wait_for_a_coordinator_that_restarts),
        TEST(workers_stay_that_could_not_say_so_yet),
        TEST(workers_that_do_not_stay_say_so_later),
        TEST(a_drain_keeps_the_states_of_a_generation_that_forms),
        TEST(from_scratch_keeps_no_state_of_a_generation_that_forms),
        TEST(survivors_wait_for_an_agent_that_restarts),
        TEST(survivors_do_not_wait_for_a_node_that_rests),
        TEST(survivors_do_not_wait_for_ever),
        TEST(a_late_watch_says_nothing_about_the_next_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
