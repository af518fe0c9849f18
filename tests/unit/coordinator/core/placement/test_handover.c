/* A running train job goes to other nodes without a stop: when, how, and what happens if that fails. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/coordinator/core/placement/staying_job.h"

#define TWO "nodes: 2\nprocs_per_node: 1\n"
#define ELASTIC "nodes: \"1:3\"\nprocs_per_node: 1\n"

static struct job *job_at(const struct core_fixture *f, int64_t job)
{
    return core_find_job(f->core, job);
}

static void a_job_grows_without_a_stop(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);
    uint64_t watch = fixture_watch(f, job, 1);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    assert_int_equal(fixture_reply(f, watch)->handover, staying_handover(f, job));
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(fixture_generation(f, job)->number, 1);
    watch = staying_rank_waits(f, job, 0);
    assert_int_equal(fixture_generation(f, job)->number, 1); /* rank 1 is in its step */
    staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(core_generation(f->core, job, 1)->state, GENERATION_CLOSED);
    assert_string_equal(staying_watch_says(f, watch), "member");
    assert_int_equal(fixture_reply(f, watch)->handover, 0);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(fixture_spawn(f, job, rank), rank + 1);
    assert_string_equal(fixture_node_of(f, job, 2), "box3");
    fixture_pass(f, 200);
    staying_job_rejoin(f, job, 20);
    assert_true(fixture_said(f, "grew from 2 to 3 nodes at step 20, without a stop, in 0.2 s: box3 joins"));
    assert_true(fixture_said(f, "state from the memory of rank 0, step 20: no step to redo"));
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_int_equal(fixture_effects(f, EFFECT_WATCH) > 0, true);
}

static void growth_needs_no_snapshots(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC TRAIN);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    assert_int_not_equal(staying_handover(f, job), 0);
}

static void a_worker_without_a_rank_is_not_signalled(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    uint64_t kept = staying_rank_waits(f, job, 0), left = staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->world_size, 1);
    assert_string_equal(staying_watch_says(f, kept), "member");
    assert_string_equal(staying_watch_says(f, left), "over");
    assert_true(job_find_spawn(job_at(f, job), 2)->r.revoked);
    assert_int_equal(job_at(f, job)->generations[0]->stop, CORE_STOP_SNAPSHOT);
    staying_job_rejoin(f, job, 20);
    assert_true(fixture_said(f, "shrank from 2 to 1 node at step 20, without a stop, in "));
}

static void a_drained_node_is_left(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    fixture_node(f, "box3", 1);
    fixture_operator(f, CORE_DRAIN, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    staying_rank_waits(f, job, 0);
    uint64_t watch = staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_reply(f, watch)->rank, 0);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_string_equal(fixture_node_of(f, job, 1), "box3");
    staying_job_rejoin(f, job, 20);
    assert_true(fixture_said(f, "went on with 2 nodes at step 20, without a stop, in "));
}

/* There is no node to go to, so the job is stopped as before. */
static void a_job_that_finds_no_other_node_is_drained(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    fixture_operator(f, CORE_DRAIN, "box1");
    uint64_t watch = staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_DRAINING);
    assert_true(fixture_reply(f, watch)->stop);
    assert_int_equal(fixture_reply(f, watch)->handover, 0);
}

/* A command on box3 is stopped to grow to box4, which is free until its workers have ended. */
static int64_t command_that_drains(struct core_fixture *f)
{
    fixture_node(f, "box3", 1);
    int64_t job = fixture_submit(f, "nodes: 1:2\nprocs_per_node: 1\n");
    fixture_form(f, job);
    fixture_node(f, "box4", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3 box4");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    return job;
}

static void a_job_leaves_the_nodes_of_one_that_drains(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, "nodes: 1:2\nprocs_per_node: 1\n" SAVED),
            other = command_that_drains(f);

    fixture_operator(f, CORE_DRAIN, "box1");
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_generation(f, job)->node_count, 1);
    fixture_all_obey(f, "box3");
    assert_int_equal(fixture_generation(f, other)->node_count, 2);
}

/* The command's user has made it smaller meanwhile, so box4 is free. */
static void a_job_takes_what_another_needs_no_more(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED), other = command_that_drains(f);

    assert_int_equal(fixture_resize(f, other, 1, 1), ERR_OK);
    fixture_operator(f, CORE_DRAIN, "box1");
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_string_equal(fixture_node_of(f, job, 1), "box4");
}

/* Without snapshots a stop would lose all, so the job stays, as before. It tries again when there may be another node. */
static void a_job_without_snapshots_stays_on_a_drained_node(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO TRAIN);

    fixture_operator(f, CORE_DRAIN, "box1");
    staying_rank_waits(f, job, 0);
    uint64_t watch = staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(staying_handover(f, job), 0);
    assert_int_equal(fixture_reply(f, watch)->handover, 0);
    fixture_node(f, "box3", 1);
    assert_int_equal(staying_handover(f, job), 0);
    fixture_pass_beating(f, 11000, "box1 box2 box3");
    assert_int_not_equal(staying_handover(f, job), 0);
}

static int64_t job_on_four_nodes(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box3", 1);
    fixture_node(f, "box4", 1);
    return staying_job_on_two(f, file);
}

static void assert_goes_on(struct core_fixture *f, int64_t job, uint64_t watch, const char *nodes)
{
    assert_int_equal(staying_handover(f, job), 0);
    assert_int_equal(fixture_reply(f, watch)->handover, 0);
    fixture_pass_beating(f, 70000, nodes);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(fixture_generation(f, job)->number, 1);
}

static void a_resize_that_is_taken_back_stops_nothing(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_on_four_nodes(f, "nodes: 4\nprocs_per_node: 1\n" SAVED);

    assert_int_equal(fixture_resize(f, job, 2, 2), ERR_OK);
    for (int rank = 0; rank < 3; rank++)
        staying_rank_waits(f, job, rank);
    const int64_t number = f->ready = staying_handover(f, job);
    assert_int_equal(fixture_resize(f, job, 4, 4), ERR_OK);
    uint64_t watch = fixture_watch(f, job, fixture_spawn(f, job, 3)); /* it has not heard of that yet */
    f->ready = 0;
    assert_goes_on(f, job, watch, "box1 box2 box3 box4");
    assert_int_equal(fixture_resize(f, job, 2, 2), ERR_OK);
    assert_true(staying_handover(f, job) > number);
}

static void an_undrain_stops_nothing(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    fixture_operator(f, CORE_DRAIN, "box1");
    uint64_t watch = staying_rank_waits(f, job, 0);
    fixture_operator(f, CORE_UNDRAIN, "box1");
    assert_goes_on(f, job, watch, "box1 box2");
}

static void a_growth_is_not_withdrawn_by_a_resize(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    const int64_t number = staying_handover(f, job);
    assert_int_not_equal(number, 0);
    assert_int_equal(fixture_resize(f, job, 1, 4), ERR_OK);
    assert_int_equal(staying_handover(f, job), number);
}

/* A stop would lose all, so it tries again. */
static void a_resize_without_snapshots_stops_nothing(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO TRAIN);

    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    uint64_t watch = staying_rank_waits(f, job, 0);
    fixture_pass_beating(f, 65000, "box1 box2"); /* rank 1 never waits */
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(fixture_reply(f, watch)->handover, 0);
    fixture_pass_beating(f, 11000, "box1 box2");
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->world_size, 1);
}

static void a_job_on_one_node_is_drained(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = staying_job(f, "procs_per_node: 1\n" SAVED);
    fixture_node(f, "box2", 1);
    fixture_operator(f, CORE_DRAIN, "box1"); /* nobody could give the state to box2 */
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_DRAINING);
}

static void members_that_do_not_stay_are_drained(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    f->stays = false;
    fixture_watch(f, job, 2);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_int_equal(staying_handover(f, job), 0);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_DRAINING);
}

static void a_handover_that_takes_too_long_is_given_up(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    uint64_t watch = staying_rank_waits(f, job, 0);
    const int64_t number = staying_handover(f, job);
    fixture_pass_beating(f, 61000, "box1 box2 box3");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(fixture_reply(f, watch)->handover, 0);
    fixture_pass_beating(f, 20000, "box1 box2 box3");
    assert_int_not_equal(staying_handover(f, job), 0);
    assert_int_not_equal(staying_handover(f, job),
                         number); /* whoever still waits for the first one must see that it is over */
}

/* `shard: optimizer`: both ranks have gathered so many bytes of their moments. */
static void ranks_gather(struct core_fixture *f, int64_t job, int64_t bytes)
{
    f->gathered = bytes;
    for (int rank = 0; rank < 2; rank++)
        fixture_watch(f, job, fixture_spawn(f, job, rank));
    f->gathered = 0;
}

static void a_handover_lasts_as_long_as_its_ranks_gather(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    const int64_t number = staying_handover(f, job);
    for (int64_t i = 0; i < 10; i++) {
        fixture_pass_beating(f, 50000, "box1 box2 box3");
        ranks_gather(f, job, 1 + i * 1000);
        assert_int_equal(staying_handover(f, job), number);
    }
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->number, 2);
}

/* The ranks do not train meanwhile, so the job must not stay in this state. */
static void a_handover_that_stalls_restarts_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    assert_int_equal(fixture_commit(f, job, 1, 1, 20, "aa"), ERR_OK);
    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    ranks_gather(f, job, 1);
    ranks_gather(f, job, 5000001);
    fixture_pass_beating(f, 50000, "box1 box2 box3");
    ranks_gather(f, job, 5000001); /* no more than before */
    fixture_pass_beating(f, 11000, "box1 box2 box3");
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_DRAINING);
    assert_true(fixture_said(
        f, "box3 joins, but the hand-over made no progress for 1m00s after 5.0 MB of the optimizer's state"
           "; the job continues from its snapshot of step 20 (does not count as a restart)"));
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_generation(f, job)->node_count, 3);
}

/* Otherwise the same hand-over would begin again. */
static void a_job_whose_handover_stalled_leaves_its_nodes_to_the_other_one(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);
    int64_t other = fixture_submit(f, "priority: 1\nprocs_per_node: 1\n" COMMAND);

    ranks_gather(f, job, 1);
    fixture_pass_beating(f, 61000, "box1 box2");
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_DRAINING);
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->node_count, 1);
}

/* A stop would lose all. It is tried again, less and less often. */
static void a_job_without_snapshots_is_not_held_up_for_ever(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO TRAIN);

    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    ranks_gather(f, job, 1);
    fixture_pass_beating(f, 61000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(staying_handover(f, job), 0);
    assert_true(fixture_said(
        f,
        "resized, but rank 0 on box1 did not gather the optimizer's state in time: the job keeps its nodes, "
        "and the next attempt is in 10 s"));
    fixture_pass_beating(f, 11000, "box1 box2");
    ranks_gather(f, job, 2);
    fixture_pass_beating(f, 121000, "box1 box2");
    assert_true(fixture_said(f, "the next attempt is in 20 s"));
    fixture_pass_beating(f, 11000, "box1 box2");
    assert_int_equal(staying_handover(f, job), 0);
    fixture_pass_beating(f, 10000, "box1 box2");
    assert_int_not_equal(staying_handover(f, job), 0);
}

static void slow_steps_have_more_time(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_report(f, job, 1, 21, "ms_per_step", 100000);
    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    const int64_t number = staying_handover(f, job);
    fixture_pass_beating(f, 250000, "box1 box2 box3");
    assert_int_equal(staying_handover(f, job), number);
    fixture_pass_beating(f, 11000, "box1 box2 box3");
    assert_int_equal(staying_handover(f, job), 0);
    assert_true(fixture_said(
        f,
        "box3 joins, but rank 0 on box1 did not reach the end of its step in time: the job keeps its nodes, "
        "and the next attempt is in 10 s"));
    fixture_pass_beating(f, 11000, "box1 box2 box3");
    fixture_pass_beating(f, 510000, "box1 box2 box3"); /* and then twice as much */
    assert_int_not_equal(staying_handover(f, job), 0);
}

/* The time for slow steps does not count when all ranks gather. */
static void a_job_with_slow_steps_does_not_stall_longer(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_report(f, job, 1, 21, "ms_per_step", 100000);
    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    f->gathered = 1;
    fixture_watch(f, job, fixture_spawn(f, job, 0));
    f->gathered = 0;
    fixture_pass_beating(f, 100000, "box1 box2 box3"); /* the other rank may still be in its step */
    assert_int_not_equal(staying_handover(f, job), 0);
    ranks_gather(f, job, 5000001);
    fixture_pass_beating(f, 59000, "box1 box2 box3");
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_RUNNING);
    fixture_pass_beating(f, 2000, "box1 box2 box3");
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_DRAINING);
    assert_true(
        fixture_said(f, "the hand-over made no progress for 1m00s after 5.0 MB of the optimizer's state"));
}

static void a_member_that_dies_meanwhile_is_an_ordinary_loss(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    uint64_t watch = staying_rank_waits(f, job, 0);
    fixture_exit(f, job, 1, 0, 9);
    assert_int_equal(core_generation(f->core, job, 1)->state, GENERATION_FAILED);
    assert_int_equal(staying_handover(f, job), 0);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_string_equal(staying_watch_says(f, watch), "member");
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
}

/* Nothing is durable before the members wait, so a new coordinator begins anew. */
static void a_restarted_coordinator_asks_again(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    const int64_t number = staying_handover(f, job);
    fixture_pass(f, 10);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_hello(f, "box2", "box2", 1, 0);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    f->ready = number;
    uint64_t watch = fixture_watch(f, job, 1);
    f->ready = 0;
    assert_int_equal(fixture_reply(f, watch)->handover, 0);
    fixture_watch(f, job, 2);
    fixture_pass_beating(f, 100, "box1 box2");
    assert_int_not_equal(staying_handover(f, job), 0);
    assert_int_not_equal(staying_handover(f, job), number);
    assert_int_equal(fixture_generation(f, job)->number, 1);
}

static void cancelling_a_job_whose_members_wait_stops_it(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, ELASTIC SAVED);

    fixture_node(f, "box3", 1);
    fixture_pass_beating(f, 6000, "box1 box2 box3");
    uint64_t watch = staying_rank_waits(f, job, 0);
    fixture_cancel(f, job, false);
    assert_true(fixture_reply(f, watch)->stop);
    assert_int_equal(fixture_reply(f, watch)->handover, 0);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_DRAINING);
}

/* The next generation starts only when old workers are dead, so the members must not wait for that. */
static void a_second_handover_waits_until_old_workers_are_dead(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);

    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    staying_job_rejoin(f, job, 20);
    assert_int_equal(fixture_resize(f, job, 2, 2), ERR_OK);
    assert_int_equal(staying_handover(f, job), 0);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_all_obey(f, "box2");
    fixture_pass_beating(f, 6000, "box1 box2");
    assert_int_not_equal(staying_handover(f, job), 0);
}

/* The hand-over cannot begin yet, and then it is no longer possible. */
static void members_refuse_before_it_begins(struct core_fixture *f, int64_t job)
{
    assert_int_equal(staying_handover(f, job), 0);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    f->stays = false;
    fixture_watch(f, job, fixture_spawn(f, job, 1));
    fixture_all_obey(f, "box3");
    fixture_pass_beating(f, 100, "box1 box2 box3");
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_DRAINING);
}

/* A job on box1 and box2, whose worker on box3 has not exited yet. */
static int64_t job_with_an_old_worker(struct core_fixture *f)
{
    fixture_node(f, "box3", 1);
    int64_t job = staying_job_on_two(f, "nodes: 3\nprocs_per_node: 1\n" SAVED);

    assert_int_equal(fixture_resize(f, job, 2, 2), ERR_OK);
    for (int rank = 0; rank < 3; rank++)
        staying_rank_waits(f, job, rank);
    staying_job_rejoin(f, job, 20);
    return job;
}

static void a_drain_is_not_forgotten(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_an_old_worker(f);

    fixture_operator(f, CORE_DRAIN, "box1");
    members_refuse_before_it_begins(f, job);
}

static void a_resize_is_not_forgotten(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_an_old_worker(f);

    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    members_refuse_before_it_begins(f, job);
}

static int64_t samples_of(const struct core_fixture *f, int64_t job, int rank, double *sample_ms)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, true, &status, &e), ERR_OK);
    int64_t samples = status.ranks[rank].samples;
    *sample_ms = status.ranks[rank].sample_ms;
    core_job_status_release(&status);
    return samples;
}

/* `balance: speed`: a rank alone takes all samples. */
static void a_rank_keeps_no_portion_of_its_former_group(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_on_two(f, TWO SAVED);
    double sample_ms;

    fixture_report(f, job, 0, 21, "balance_samples", 24);
    fixture_report(f, job, 0, 21, "balance_ms", 1.5);
    assert_int_equal(samples_of(f, job, 0, &sample_ms), 24);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    staying_rank_waits(f, job, 0);
    staying_rank_waits(f, job, 1);
    assert_int_equal(samples_of(f, job, 0, &sample_ms), 0);
    assert_true(sample_ms == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_grows_without_a_stop),
        TEST(growth_needs_no_snapshots),
        TEST(a_worker_without_a_rank_is_not_signalled),
        TEST(a_drained_node_is_left),
        TEST(a_job_that_finds_no_other_node_is_drained),
        TEST(a_job_leaves_the_nodes_of_one_that_drains),
        TEST(a_job_takes_what_another_needs_no_more),
        TEST(a_job_without_snapshots_stays_on_a_drained_node),
        TEST(a_resize_that_is_taken_back_stops_nothing),
        TEST(an_undrain_stops_nothing),
        TEST(a_growth_is_not_withdrawn_by_a_resize),
        TEST(a_resize_without_snapshots_stops_nothing),
        TEST(a_job_on_one_node_is_drained),
        TEST(members_that_do_not_stay_are_drained),
        TEST(a_handover_that_takes_too_long_is_given_up),
        TEST(a_handover_lasts_as_long_as_its_ranks_gather),
        TEST(a_handover_that_stalls_restarts_the_job),
        TEST(a_job_whose_handover_stalled_leaves_its_nodes_to_the_other_one),
        TEST(a_job_without_snapshots_is_not_held_up_for_ever),
        TEST(slow_steps_have_more_time),
        TEST(a_job_with_slow_steps_does_not_stall_longer),
        TEST(a_member_that_dies_meanwhile_is_an_ordinary_loss),
        TEST(a_restarted_coordinator_asks_again),
        TEST(cancelling_a_job_whose_members_wait_stops_it),
        TEST(a_second_handover_waits_until_old_workers_are_dead),
        TEST(a_drain_is_not_forgotten),
        TEST(a_resize_is_not_forgotten),
        TEST(a_rank_keeps_no_portion_of_its_former_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
