/* Workers that outlive a failed generation of their train job and go on in the next one, and those that cannot. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/exits.h"
#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define SAVED TRAIN "  snapshot: {dir: /out, every: 10}\n"
#define FOUR "procs_per_node: 4\n"

static const struct spawn *spawn_of(const struct core_fixture *f, int64_t job, int64_t number)
{
    return job_find_spawn(core_find_job(f->core, job), number);
}

static const struct job_record *record_of(const struct core_fixture *f, int64_t job)
{
    return core_job(f->core, job);
}

/* All ranks run, at step 20, and say that they stay. */
static int64_t staying_job(struct core_fixture *f, const char *file)
{
    int64_t job = fixture_submit(f, file);

    f->stays = true;
    fixture_form(f, job);
    fixture_report(f, job, 0, 20, "loss", 0.5);
    return job;
}

static int64_t job_of_four(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 4);
    return staying_job(f, file);
}

/* Rank 3 says that it does not stay, and rank 2 dies. So ranks 0 and 1 wait until rank 3 is known dead. */
static int64_t waiting_job(struct core_fixture *f, const char *file)
{
    int64_t job = job_of_four(f, file);

    f->stays = false;
    fixture_watch(f, job, 4);
    f->stays = true;
    fixture_exit(f, job, 2, 0, 9);
    return job;
}

static void rejoin(struct core_fixture *f, int64_t job, int64_t live_step)
{
    f->live_step = live_step;
    fixture_form(f, job);
    f->live_step = 0;
}

/* The last word of this Watch, as letters: member, wait, over. */
static const char *watch_says(const struct core_fixture *f, uint64_t call)
{
    const struct core_effect *word = fixture_reply(f, call);

    return word->member ? "member" : word->wait ? "wait" : "over";
}

static void the_others_go_on_when_a_rank_dies(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);
    uint64_t watch = fixture_watch(f, job, 2);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(record_of(f, job)->generation, 2);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(fixture_spawn(f, job, rank), rank == 2 ? 5 : rank + 1);
        assert_int_equal(fixture_stop(f, job, rank), CORE_STOP_NONE);
        assert_false(spawn_of(f, job, fixture_spawn(f, job, rank))->r.revoked);
    }
    assert_int_equal(spawn_of(f, job, 5)->r.cpu_slot, 2); /* the slot that became free */
    assert_int_equal(spawn_of(f, job, 5)->r.first_local_rank, 2);
    assert_int_equal(record_of(f, job)->restarts_used, 0);
    assert_false(core_generation(f->core, job, 1)->charged);
    assert_string_equal(watch_says(f, watch), "member");
    assert_int_equal(fixture_reply(f, watch)->generation, 2);
    assert_int_equal(fixture_reply(f, watch)->rank, 1);
    assert_true(fixture_said(f, "generation 1 closed (3 of 4 ranks go on; replacement 1 of 20 in a day)"));
}

static uint64_t join_having(struct core_fixture *f, int64_t job, int rank, int64_t live_step)
{
    f->live_step = live_step;
    uint64_t call = fixture_join(f, job, rank);
    f->live_step = 0;
    return call;
}

/* A commit and nobody offers it: the state in memory is newer than any file. */
static void the_newest_state_in_memory_is_the_source(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    assert_int_equal(fixture_commit(f, job, 1, 1, 10, "d"), ERR_OK);
    fixture_exit(f, job, 0, 0, 9);
    fixture_all_run(f, "box1");
    fixture_join(f, job, 0); /* the new process */
    join_having(f, job, 1, 20);
    join_having(f, job, 2, 21);
    join_having(f, job, 3, 21);
    const struct generation_record *g = fixture_generation(f, job);
    assert_int_equal(g->state, GENERATION_READY);
    assert_int_equal(g->source_rank, 2);
    assert_int_equal(g->source_step, 21);
    assert_true(core_generation_is_live(g));
    fixture_put(f, job, "bootstrap");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_true(fixture_said(f, "; state from the memory of rank 2, step 21: no step to redo"));
    struct core_job_status status;
    struct err e;
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_int_equal(status.progress->step, 21);
    core_job_status_release(&status);
    fixture_report(f, job, 0, 22, NULL, 0);
    assert_true(fixture_said(f, "back at step 20: no step redone"));
    fixture_restart(f); /* the records still tell what the source is */
    assert_true(core_generation_is_live(fixture_generation(f, job)));
}

/* None of them has a whole state, so the snapshot counts, which is offered to all. */
static void without_a_state_the_snapshot_is_the_source(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);
    const struct core_offer offer = {
        .job = job, .generation = 1, .step = 10, .digest = "d", .path = "/out/step"};

    assert_int_equal(fixture_commit(f, job, 1, 1, 10, "d"), ERR_OK);
    fixture_exit(f, job, 0, 0, 9);
    fixture_all_run(f, "box1");
    for (int rank = 0; rank < 4; rank++)
        fixture_join_with(f, job, rank, &offer, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    assert_false(core_generation_is_live(fixture_generation(f, job)));
}

static void workers_that_do_not_stay_are_stopped(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, FOUR SAVED);
    fixture_form(f, job);
    uint64_t watch = fixture_watch(f, job, 1);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_string_equal(watch_says(f, watch), "over");
}

static void a_command_has_no_survivors(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, FOUR "max_restarts: 1\n");
    fixture_form(f, job);
    core_find_job(f->core, job)->spec.max_replacements = 20;
    for (size_t i = 0; i < 4; i++)
        core_find_job(f->core, job)->spawns[i]->stays = true;
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

static void survivors_wait_until_the_others_are_dead(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);
    uint64_t watch = fixture_watch(f, job, 1), left;

    f->stays = false;
    left = fixture_watch(f, job, 4);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_string_equal(watch_says(f, watch), "wait");
    assert_string_equal(watch_says(f, left), "over");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL); /* it has nothing to save */
    assert_string_equal(fixture_waits(f, job), "waits until rank 3 of generation 1 is known dead on box1");
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(watch_says(f, watch), "member");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 3), 6);
    assert_int_equal(record_of(f, job)->restarts_used, 0);
}

/* It is stuck in the kernel for a moment, and nobody has killed it. */
static void a_survivor_is_not_given_up_with_the_killed(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);
    struct job *of = core_find_job(f->core, job);

    of->spawns[0]->proc_state = 'D';
    fixture_pass_beating(f, 25000, "box1");
    assert_false(of->spawns[0]->r.dead);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
}

static void a_rank_that_stands_still_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR "stall_timeout: 30s\n" SAVED);
    struct core_activity quiet = {.job = job, .spawn = 3, .idle_ms = 31000, .silent_ms = 31000, .state = 'T'};
    uint64_t session = core_find_node(f->core, "box1")->session;

    core_event(f->core,
               &(struct core_event){.kind = CORE_ACTIVITY, .session = session, .activity = {&quiet, 1}},
               f->now, &f->out);
    core_tick(f->core, f->now, &f->out);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 2), CORE_STOP_KILL);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 2), 5);
    assert_int_equal(record_of(f, job)->restarts_used, 0);
}

static void the_replacement_may_die_at_once(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    uint64_t watch = fixture_watch(f, job, 2);
    uint64_t join = join_having(f, job, 1, 20); /* ranks 0 and 3 have not come so far */
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_reply(f, join)->err.code, ERR_ABORTED);
    assert_string_equal(watch_says(f, watch), "member");
    assert_int_equal(fixture_reply(f, watch)->generation, 3);
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 2), 6);
    assert_int_equal(record_of(f, job)->restarts_used, 0);
    assert_true(fixture_said(f, "generation 2 closed (3 of 4 ranks go on; replacement 2 of 20 in a day)"));
    rejoin(f, job, 20);
    assert_int_equal(fixture_commit(f, job, 6, 3, 20, "d"), ERR_OK);
}

/* A new process has no state before its generation runs. It is not worth waiting for. */
static void a_replacement_that_never_ran_does_not_stay(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    fixture_all_run(f, "box1");
    fixture_join(f, job, 2);
    fixture_exit(f, job, 0, 0, 9);
    assert_int_equal(fixture_stop(f, job, 2), CORE_STOP_KILL);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_NONE);
}

/* A generation that has not run has no state to keep: it fails as before. */
static void ranks_of_the_first_forming_generation_do_not_stay(void **state)
{
    struct core_fixture *f = *state;

    f->stays = true;
    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, FOUR SAVED);
    fixture_all_run(f, "box1");
    fixture_join(f, job, 0);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

static void a_survivor_that_does_not_join_in_time_is_killed(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    fixture_all_run(f, "box1");
    for (int rank = 0; rank < 3; rank++)
        join_having(f, job, rank, 20);
    fixture_pass_beating(f, 61000, "box1");
    assert_true(fixture_said(f, "rank 3 on box1 did not join within 60 s"));
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 3), 7);
}

static void when_the_replacements_are_used_up_a_failure_counts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR "max_replacements: 1\n" SAVED);

    fixture_exit(f, job, 2, 0, 9);
    rejoin(f, job, 20);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_true(fixture_said(
        f, "generation 2 closed (all replacements of the last 24 hours are used; restart 1 of 3)"));
    fixture_all_obey(f, "box1");
    fixture_form(f, job);
    f->now.wall_ms += 24LL * 3600 * 1000; /* a day later there is one more */
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
}

static void a_failure_without_survivors_is_no_replacement(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR "max_replacements: 1\n" SAVED);

    f->stays = false;
    for (int64_t spawn = 1; spawn <= 4; spawn++)
        fixture_watch(f, job, spawn);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    fixture_all_obey(f, "box1");
    f->stays = true;
    fixture_form(f, job);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
}

static void without_replacements_every_failure_counts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR "max_replacements: 0\n" SAVED);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_true(fixture_said(f, "generation 1 closed (restart 1 of 3)"));
}

static void a_job_without_restarts_goes_on_too(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR "max_restarts: 0\n" TRAIN);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    rejoin(f, job, 20);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void a_failure_that_would_repeat_ends_the_job_and_its_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, EXIT_NO_RESTART, 0);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
}

/* Rank 2 lost its peer and was seen first; rank 1, which was taken for a survivor, is the culprit. */
static void the_culprit_may_be_seen_among_the_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    f->stays = false;
    fixture_watch(f, job, 3);
    fixture_watch(f, job, 4);
    fixture_exit(f, job, 2, EXIT_PEER_LOST, 0);
    fixture_exit(f, job, 1, 0, 11);
    assert_true(fixture_said(
        f, "rank 1 killed by signal 11 on box1, noticed after 12 ms: this failure came first\n"));
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 1), 5);
}

static void a_culprit_that_ends_the_job_ends_its_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    f->stays = false;
    fixture_watch(f, job, 4);
    fixture_exit(f, job, 2, EXIT_PEER_LOST, 0);
    fixture_exit(f, job, 1, EXIT_NO_RESTART, 0);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
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
    assert_string_equal(watch_says(f, watch), "over");
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_true(core_generation(f->core, job, 1)->charged);
    assert_true(fixture_said(f, "no rank of generation 1 goes on: restart 1 of 3"));
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
}

static void survivors_go_on_with_a_spare_node(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    int64_t job = staying_job(f, "nodes: 2\nprocs_per_node: 2\n" SAVED);
    fixture_node(f, "box3", 2);
    fixture_pass_beating(f, 9000, "box1 box3");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 1), 2);
    assert_string_equal(fixture_node_of(f, job, 2), "box3");
    assert_int_equal(record_of(f, job)->restarts_used, 0);
    assert_true(fixture_said(f, "(2 of 4 ranks go on; replacement 1 of 20 in a day)"));
    /* box2 comes back: its workers are from before */
    fixture_hello(f, "box2", "box2", 2, 0);
    assert_true(spawn_of(f, job, 3)->r.revoked);
}

static void an_elastic_job_goes_on_with_fewer_nodes(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    int64_t job = staying_job(f, "nodes: 1:2\nprocs_per_node: 2\n" SAVED);
    fixture_pass_beating(f, 9000, "box2"); /* the ranks on box2 become ranks 0 and 1 */
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
    assert_int_equal(fixture_spawn(f, job, 0), 3);
    assert_int_equal(core_spawn_rank(f->core, job, 4)->rank, 1);
    assert_int_equal(record_of(f, job)->restarts_used, 0);
}

/* Its node is drained meanwhile, so the survivor there has no rank in the next generation. */
static void a_survivor_without_a_rank_is_stopped(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    int64_t job = staying_job(f, "nodes: 2\nprocs_per_node: 2\n" TRAIN);
    fixture_node(f, "box3", 2);
    f->stays = false;
    fixture_watch(f, job, 3); /* rank 2 on box2 does not stay, so the others wait for its end */
    f->stays = true;
    uint64_t watch = fixture_watch(f, job, 4);
    fixture_exit(f, job, 1, 0, 9);
    assert_string_equal(watch_says(f, watch), "wait");
    fixture_operator(f, CORE_DRAIN, "box2");
    fixture_fact(f, job, 2, (struct spawn_fact){.state = SPAWN_EXITED, .signal = 9, .stopped = true});
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_string_equal(fixture_node_of(f, job, 2), "box3");
    assert_string_equal(watch_says(f, watch), "over");
    assert_true(spawn_of(f, job, 4)->r.revoked);
}

/* There is another node, but no survivor can go on there. */
static void a_job_that_moves_to_other_nodes_is_charged(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);

    fixture_node(f, "box2", 4);
    fixture_operator(f, CORE_DRAIN, "box1");
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box1"); /* now the survivors are told to stop, too */
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_int_equal(record_of(f, job)->restarts_used, 1);
}

/* The lost rank had reported a step that no other has finished. */
static void the_shown_step_does_not_go_back(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    fixture_report(f, job, 2, 21, NULL, 0);
    fixture_exit(f, job, 2, 0, 9);
    rejoin(f, job, 20);
    assert_true(fixture_said(f, "from the memory of rank 0, step 20: 1 step to redo"));
    assert_int_equal(core_find_job(f->core, job)->progress.step, 21);
}

/* Nothing but its own old worker keeps the job from going on, so its slots are not for others. */
static void no_other_job_gets_the_slots_of_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);
    int64_t other = fixture_submit(f, "priority: 9\n");

    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    fixture_node(f, "box2", 1);
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
}

/* What survivors hold is not counted twice: the fifth slot is free for another job in the same pass. */
static void a_placed_job_takes_only_what_its_new_processes_need(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 5);
    int64_t job = staying_job(f, FOUR SAVED), first = fixture_submit(f, "name: first\n");
    int64_t second = fixture_submit(f, "name: second\n");
    struct spawn_fact facts[6] = {{0}};

    fixture_form(f, first);
    assert_int_equal(fixture_job(f, second), JOB_QUEUED);
    for (int i = 0; i < 4; i++)
        facts[i] = (struct spawn_fact){.job = job, .spawn = i + 1, .state = SPAWN_RUNNING};
    facts[1].state = SPAWN_EXITED;
    facts[1].signal = 9;
    facts[4] = (struct spawn_fact){.job = first, .spawn = 1, .state = SPAWN_EXITED};
    fixture_facts(f, "box1", facts, 5);
    assert_int_equal(fixture_job(f, first), JOB_SUCCEEDED);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_job(f, second), JOB_STARTING);
}

static void when_the_last_survivor_dies_the_failure_counts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);

    fixture_exit(f, job, 0, 1, 0);
    assert_int_equal(record_of(f, job)->restarts_used, 0);
    fixture_exit(f, job, 1, 1, 0);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_true(core_generation(f->core, job, 1)->charged);
    assert_non_null(strstr(record_of(f, job)->last_restart, "rank 2 killed by signal 9"));
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
}

static void without_restarts_the_job_fails_with_its_last_survivor(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR "max_restarts: 0\n" SAVED);

    fixture_exit(f, job, 0, 1, 0);
    fixture_exit(f, job, 1, 1, 0);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(record_of(f, job)->exit_code, 137);
    assert_non_null(strstr(record_of(f, job)->reason, "rank 2 killed by signal 9"));
}

static void cancelling_ends_waiting_survivors(void **state)
{
    struct core_fixture *f = *state;

    for (int kill = 0; kill < 2; kill++) {
        int64_t job = waiting_job(f, FOUR SAVED);
        uint64_t watch = fixture_watch(f, job, 1);
        fixture_cancel(f, job, kill);
        assert_string_equal(watch_says(f, watch), "over");
        assert_int_equal(fixture_stop(f, job, 0), kill ? CORE_STOP_KILL : CORE_STOP_TERM);
        fixture_all_obey(f, "box1");
        assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
        assert_int_equal(record_of(f, job)->restarts_used, 0);
        f->stays = false;
    }
}

static void starting_from_scratch_ends_waiting_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR "max_restarts: 0\n" SAVED);

    assert_int_equal(fixture_from_scratch(f, job), ERR_OK);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_spawn(f, job, 0), 5);
    assert_int_equal(record_of(f, job)->restarts_used, 0);
}

static void a_time_limit_ends_waiting_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR "time_limit: 20s\n" SAVED);

    fixture_pass_beating(f, 21000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

static void a_lost_node_takes_its_waiting_survivors_with_it(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);

    fixture_pass(f, 10000);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
    assert_true(spawn_of(f, job, 1)->r.revoked);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
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
    assert_string_equal(watch_says(f, there), "over");
    assert_string_equal(watch_says(f, here), "wait");
    assert_int_equal(record_of(f, job)->restarts_used, 0);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_string_equal(fixture_node_of(f, job, 2), "box3");
}

/* The coordinator restarts while survivors wait: their node is not connected yet, and nobody has said that they stay. */
static void survivors_wait_for_a_coordinator_that_restarts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);

    fixture_restart(f);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    uint64_t watch = fixture_watch(f, job, 1);
    assert_string_equal(watch_says(f, watch), "wait");
    fixture_hello(f, "box1", "box1", 4, 0);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(watch_says(f, watch), "member");
    assert_int_equal(fixture_spawn(f, job, 1), 2);
    assert_int_equal(record_of(f, job)->restarts_used, 0);
    assert_false(core_generation(f->core, job, 1)->charged);
}

static void a_restarted_coordinator_knows_that_the_failure_may_count(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);

    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_run(f, "box1");
    fixture_exit(f, job, 0, 1, 0);
    fixture_exit(f, job, 1, 1, 0);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
}

/* An agent restarts: its node is not connected for a moment, and its workers live. */
static void survivors_wait_for_an_agent_that_restarts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);

    core_event(f->core,
               &(struct core_event){.kind = CORE_SESSION_CLOSED,
                                    .session = core_find_node(f->core, "box1")->session},
               f->now, &f->out);
    fixture_pass(f, 2000);
    assert_false(spawn_of(f, job, 1)->r.revoked);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
}

/* A node that rests would keep them waiting for half a minute. */
static void survivors_do_not_wait_for_a_node_that_rests(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    fixture_fact(f, job, 2,
                 (struct spawn_fact){.state = SPAWN_EXITED, .not_started = true, .node_trouble = true});
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_int_equal(record_of(f, job)->restarts_used, 0); /* a failure of the node never counts */
}

/* A process of the job's node that nobody knows keeps the node from getting work, perhaps for long. */
static void survivors_do_not_wait_for_ever(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);
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
    assert_int_equal(record_of(f, job)->restarts_used, 1);
}

/* Its node has said that it was quiet while it waited, which is not news of this generation. */
static void a_survivor_begins_its_generation_unsuspected(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR "stall_timeout: 30s\n" SAVED);
    struct job *of = core_find_job(f->core, job);

    of->spawns[0]->idle_since = of->spawns[0]->silent_since = 1;
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(of->spawns[0]->idle_since, 0);
    assert_int_equal(of->spawns[0]->silent_since, 0);
}

/* Words about the last generation do not concern the next one. */
static void a_late_watch_says_nothing_about_the_next_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);
    struct core_event event = {.kind = CORE_WATCH, .call = 7777, .watch = {.generation = 1, .stays = true}};

    fixture_exit(f, job, 2, 0, 9);
    rejoin(f, job, 20);
    event.member.job = job;
    event.member.spawn = 1;
    event.watch.failed_step = 30;
    core_event(f->core, &event, f->now, &f->out);
    assert_string_equal(watch_says(f, 7777), "member");
    assert_int_equal(fixture_reply(f, 7777)->generation, 2);
    bool pending;
    assert_int_equal(fixture_commit_part(f, job, 0, 30, 4, "d", &pending), ERR_OK);
}

/* The failure may never become a restart, so it does not take the place of one that did. */
static void a_culprit_seen_late_is_no_restart_yet(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    f->stays = false;
    fixture_watch(f, job, 1);
    for (int64_t spawn = 2; spawn <= 4; spawn++)
        fixture_watch(f, job, spawn);
    fixture_exit(f, job, 3, 7, 0);
    fixture_all_obey(f, "box1");
    f->stays = true;
    fixture_form(f, job);
    assert_non_null(strstr(record_of(f, job)->last_restart, "code 7"));
    f->stays = false;
    fixture_watch(f, job, fixture_spawn(f, job, 2));
    fixture_watch(f, job, fixture_spawn(f, job, 3));
    fixture_exit(f, job, 2, EXIT_PEER_LOST, 0);
    fixture_exit(f, job, 1, 0, 11);
    assert_true(fixture_said(f, "this failure came first"));
    assert_non_null(strstr(record_of(f, job)->last_restart, "code 7"));
}

/* All ranks have waited for word of a lost peer, in vain. They end one after the other, so no process may be replaced for it. */
static void a_broken_group_has_no_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, EXIT_PEER_LOST, 0);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_TERM);
}

/* A rank that dies at each start, before the first step: it is not replaced without end. */
static void failures_without_a_step_are_charged_in_the_end(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, FOUR SAVED);
    f->stays = true;
    for (int generation = 1; generation <= 3; generation++) {
        fixture_form(f, job);
        fixture_exit(f, job, 2, 0, 11);
        assert_int_equal(record_of(f, job)->restarts_used, 0);
        assert_int_equal(record_of(f, job)->generation, generation + 1);
    }
    fixture_form(f, job);
    fixture_exit(f, job, 2, 0, 11);
    assert_int_equal(record_of(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

static int64_t job_on_gpus(struct core_fixture *f, const char *file)
{
    fixture_hello(f, "box1", "box1", 4, 4);
    fixture_facts(f, "box1", NULL, 0);
    return staying_job(f, file);
}

static void check_gpu(const struct core_fixture *f, int64_t spawn, const char *uuid)
{
    assert_string_equal(spawn_of(f, 1, spawn)->r.gpu_uuids[0], uuid);
}

static void survivors_keep_their_gpus(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_on_gpus(f, "device: cuda\ngpus_per_proc: 1\n" FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_spawn(f, job, 1), 2);
    assert_int_equal(fixture_spawn(f, job, 2), 5);
    check_gpu(f, 2, "GPU-box1-1");
    check_gpu(f, 5, "GPU-box1-2"); /* the one that became free */
}

static void a_worker_on_a_lost_gpu_does_not_survive(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_on_gpus(f, "device: cuda\ngpus_per_proc: 1\nprocs_per_node: 2\n" SAVED);
    const struct core_gpu gpu = {
        .uuid = (char *)"GPU-box1-1", .index = 1, .lost = true, .problem = (char *)"Xid 79"};
    struct core_event event = {.kind = CORE_HEARTBEAT,
                               .session = core_find_node(f->core, "box1")->session,
                               .heartbeat = {.gpus = &gpu, .gpu_count = 1}};

    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_KILL);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 1), 3);
    check_gpu(f, 3, "GPU-box1-2");
}

/* Its local rank is in its environment, so it cannot become another one. */
static void a_survivor_whose_local_rank_is_gone_gets_no_rank(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, FOUR SAVED);

    core_find_job(f->core, job)->spawns[0]->r.first_local_rank = 7;
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING); /* its slot is not free for another process */
    assert_int_equal(record_of(f, job)->restarts_used, 1);
}

/* A backup was restored from before the survivors' generation. Their calls about it wait until the nodes have told of it. */
static void restored_records_do_not_end_a_later_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_four(f, FOUR SAVED);

    f->kept.age = RECORDS_RESTORED;
    fixture_restart(f);
    const enum core_event_kind kinds[] = {CORE_JOIN, CORE_WATCH, CORE_COMMIT_SNAPSHOT};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct core_event event = {.kind = kinds[i], .call = 7000 + i};
        event.member.job = job;
        event.member.spawn = 1;
        if (kinds[i] == CORE_JOIN)
            event.join.generation = 2;
        else if (kinds[i] == CORE_WATCH)
            event.watch.generation = 2;
        else
            event.snapshot.generation = 2;
        event.snapshot.digest = kinds[i] == CORE_COMMIT_SNAPSHOT ? "d" : event.snapshot.digest;
        event.snapshot.path = kinds[i] == CORE_COMMIT_SNAPSHOT ? "/out/step" : event.snapshot.path;
        core_event(f->core, &event, f->now, &f->out);
        assert_int_equal(fixture_reply(f, event.call)->err.code, ERR_UNAVAILABLE);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_others_go_on_when_a_rank_dies),
        TEST(the_newest_state_in_memory_is_the_source),
        TEST(without_a_state_the_snapshot_is_the_source),
        TEST(workers_that_do_not_stay_are_stopped),
        TEST(a_command_has_no_survivors),
        TEST(survivors_wait_until_the_others_are_dead),
        TEST(a_survivor_is_not_given_up_with_the_killed),
        TEST(a_rank_that_stands_still_is_replaced),
        TEST(the_replacement_may_die_at_once),
        TEST(a_replacement_that_never_ran_does_not_stay),
        TEST(ranks_of_the_first_forming_generation_do_not_stay),
        TEST(a_survivor_that_does_not_join_in_time_is_killed),
        TEST(when_the_replacements_are_used_up_a_failure_counts),
        TEST(a_failure_without_survivors_is_no_replacement),
        TEST(without_replacements_every_failure_counts),
        TEST(a_job_without_restarts_goes_on_too),
        TEST(a_failure_that_would_repeat_ends_the_job_and_its_survivors),
        TEST(the_culprit_may_be_seen_among_the_survivors),
        TEST(a_culprit_that_ends_the_job_ends_its_survivors),
        TEST(a_job_that_finds_no_place_gives_its_survivors_up),
        TEST(survivors_go_on_with_a_spare_node),
        TEST(an_elastic_job_goes_on_with_fewer_nodes),
        TEST(a_survivor_without_a_rank_is_stopped),
        TEST(a_job_that_moves_to_other_nodes_is_charged),
        TEST(the_shown_step_does_not_go_back),
        TEST(no_other_job_gets_the_slots_of_survivors),
        TEST(a_placed_job_takes_only_what_its_new_processes_need),
        TEST(when_the_last_survivor_dies_the_failure_counts),
        TEST(without_restarts_the_job_fails_with_its_last_survivor),
        TEST(cancelling_ends_waiting_survivors),
        TEST(starting_from_scratch_ends_waiting_survivors),
        TEST(a_time_limit_ends_waiting_survivors),
        TEST(a_lost_node_takes_its_waiting_survivors_with_it),
        TEST(only_survivors_on_a_lost_node_are_lost),
        TEST(survivors_wait_for_a_coordinator_that_restarts),
        TEST(a_restarted_coordinator_knows_that_the_failure_may_count),
        TEST(survivors_wait_for_an_agent_that_restarts),
        TEST(survivors_do_not_wait_for_a_node_that_rests),
        TEST(survivors_do_not_wait_for_ever),
        TEST(a_survivor_begins_its_generation_unsuspected),
        TEST(a_late_watch_says_nothing_about_the_next_generation),
        TEST(a_culprit_seen_late_is_no_restart_yet),
        TEST(a_broken_group_has_no_survivors),
        TEST(failures_without_a_step_are_charged_in_the_end),
        TEST(survivors_keep_their_gpus),
        TEST(a_worker_on_a_lost_gpu_does_not_survive),
        TEST(a_survivor_whose_local_rank_is_gone_gets_no_rank),
        TEST(restored_records_do_not_end_a_later_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
