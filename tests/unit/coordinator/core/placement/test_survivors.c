/* Workers that outlive a failed generation of their train job and go on in the next one, and those that cannot. */
#include "tests/unit/base/check.h"

#include <stdlib.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/placement/staying_job.h"

static void the_others_go_on_when_a_rank_dies(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);
    uint64_t watch = fixture_watch(f, job, 2);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(staying_record(f, job)->generation, 2);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(fixture_spawn(f, job, rank), rank == 2 ? 5 : rank + 1);
        assert_int_equal(fixture_stop(f, job, rank), CORE_STOP_NONE);
        assert_false(staying_spawn(f, job, fixture_spawn(f, job, rank))->r.revoked);
    }
    assert_int_equal(staying_spawn(f, job, 5)->r.cpu_slot, 2); /* the slot that became free */
    assert_int_equal(staying_spawn(f, job, 5)->r.first_local_rank, 2);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    assert_false(core_generation(f->core, job, 1)->charged);
    assert_string_equal(staying_watch_says(f, watch), "member");
    assert_int_equal(fixture_reply(f, watch)->generation, 2);
    assert_int_equal(fixture_reply(f, watch)->rank, 1);
    assert_true(
        fixture_said(f, "generation 1 closed (3 of 4 ranks can go on; replacement 1 of 20 in a day)"));
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
    int64_t job = staying_job_of_four(f, FOUR SAVED);

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
    assert_true(fixture_said(f, "back at step 21: no step redone"));
    fixture_restart(f); /* the records still tell what the source is */
    assert_true(core_generation_is_live(fixture_generation(f, job)));
}

/* None of them has a whole state, so the snapshot counts, which is offered to all. */
static void without_a_state_the_snapshot_is_the_source(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);
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
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_string_equal(staying_watch_says(f, watch), "over");
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
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

static void a_rank_that_stands_still_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR "stall_timeout: 30s\n" SAVED);
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
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

static void the_replacement_may_die_at_once(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    uint64_t watch = fixture_watch(f, job, 2);
    uint64_t join = join_having(f, job, 1, 20); /* ranks 0 and 3 have not come so far */
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_reply(f, join)->err.code, ERR_ABORTED);
    assert_string_equal(staying_watch_says(f, watch), "member");
    assert_int_equal(fixture_reply(f, watch)->generation, 3);
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 2), 6);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    assert_true(
        fixture_said(f, "generation 2 closed (3 of 4 ranks can go on; replacement 2 of 20 in a day)"));
    staying_job_rejoin(f, job, 20);
    assert_int_equal(fixture_commit(f, job, 6, 3, 20, "d"), ERR_OK);
}

/* A new process has no state before its generation runs. It is not worth waiting for. */
static void a_replacement_that_never_ran_does_not_stay(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

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
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

/* box1 says that this spawn uses no CPU time, and that all others do. */
static void say_idle(struct core_fixture *f, int64_t job, int64_t spawn)
{
    struct core_activity quiet = {.job = job, .spawn = spawn, .idle_ms = 2000, .silent_ms = -1};
    uint64_t session = core_find_node(f->core, "box1")->session;

    core_event(f->core,
               &(struct core_event){.kind = CORE_ACTIVITY, .session = session, .activity = {&quiet, 1}},
               f->now, &f->out);
}

/* Rank 2 was replaced, and all but rank 3 have joined. */
static int64_t job_without_rank_3(struct core_fixture *f)
{
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    fixture_all_run(f, "box1");
    for (int rank = 0; rank < 3; rank++)
        join_having(f, job, rank, 20);
    return job;
}

static void a_survivor_that_still_computes_is_waited_for(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_without_rank_3(f);

    fixture_pass_beating(f, 200000, "box1");
    assert_true(
        fixture_said(f, "generation 2 waits longer than 60 s for rank 3 on box1, which still computes"));
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_NONE);
    join_having(f, job, 3, 20);
    fixture_put(f, job, "bootstrap");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(fixture_spawn(f, job, 3), 4);
}

/* It goes on in the generation after that, when the replacement that did not join is replaced in turn. */
static void a_survivor_that_computes_is_not_lost_with_a_late_replacement(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, 0, 9);
    fixture_all_run(f, "box1");
    join_having(f, job, 0, 20);
    join_having(f, job, 1, 20);
    fixture_pass_beating(f, 61000, "box1");
    assert_true(fixture_said(f, "ranks 2, 3 on box1 did not join within 60 s"));
    assert_int_equal(fixture_stop(f, job, 2), CORE_STOP_KILL);
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 2), 6);
    assert_int_equal(fixture_spawn(f, job, 3), 4);
}

static void a_survivor_that_does_not_join_in_time_is_killed(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_without_rank_3(f);

    say_idle(f, job, 4);
    fixture_pass_beating(f, 61000, "box1");
    assert_true(fixture_said(f, "rank 3 on box1 did not join within 60 s"));
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_stop(f, job, 3), CORE_STOP_KILL);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 3), 7);
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
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    assert_true(fixture_said(f, "(2 of 4 ranks can go on; replacement 1 of 20 in a day)"));
    /* box2 comes back: its workers are from before */
    fixture_hello(f, "box2", "box2", 2, 0);
    assert_true(staying_spawn(f, job, 3)->r.revoked);
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
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
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
    assert_string_equal(staying_watch_says(f, watch), "wait");
    fixture_operator(f, CORE_DRAIN, "box2");
    fixture_fact(f, job, 2, (struct spawn_fact){.state = SPAWN_EXITED, .signal = 9, .stopped = true});
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_string_equal(fixture_node_of(f, job, 2), "box3");
    assert_string_equal(staying_watch_says(f, watch), "over");
    assert_true(staying_spawn(f, job, 4)->r.revoked);
}

/* The lost rank had reported a step that no other has finished. */
static void the_shown_step_does_not_go_back(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_report(f, job, 2, 21, NULL, 0);
    fixture_exit(f, job, 2, 0, 9);
    staying_job_rejoin(f, job, 20);
    assert_true(fixture_said(f, "from the memory of rank 0, step 20: 1 step to redo"));
    assert_int_equal(core_find_job(f->core, job)->progress.step, 21);
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

/* Its node has said that it was quiet while it waited. That counts from now on, because the node does not say it again. */
static void a_survivor_begins_its_generation_unsuspected(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR "stall_timeout: 30s\n" SAVED);
    struct job *of = core_find_job(f->core, job);

    of->spawns[0]->idle_since = of->spawns[0]->silent_since = 1;
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(of->spawns[0]->idle_since, f->now.boot_ms);
    assert_int_equal(of->spawns[0]->silent_since, f->now.boot_ms);
    assert_int_equal(of->spawns[1]->idle_since, 0);
    assert_int_equal(of->spawns[1]->silent_since, 0);
}

static int64_t job_on_gpus(struct core_fixture *f, const char *file)
{
    fixture_hello(f, "box1", "box1", 4, 4);
    fixture_facts(f, "box1", NULL, 0);
    return staying_job(f, file);
}

static void check_gpu(const struct core_fixture *f, int64_t spawn, const char *uuid)
{
    assert_string_equal(staying_spawn(f, 1, spawn)->r.gpu_uuids[0], uuid);
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

static void lose_gpu_1(struct core_fixture *f)
{
    const struct core_gpu gpu = {
        .uuid = (char *)"GPU-box1-1", .index = 1, .lost = true, .problem = (char *)"Xid 79"};
    struct core_event event = {.kind = CORE_HEARTBEAT,
                               .session = core_find_node(f->core, "box1")->session,
                               .heartbeat = {.gpus = &gpu, .gpu_count = 1}};

    core_event(f->core, &event, f->now, &f->out);
}

/* Rank 1 waits until rank 2 is dead. */
static void a_survivor_whose_gpu_is_lost_while_it_waits_does_not_go_on(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_on_gpus(f, "device: cuda\ngpus_per_proc: 1\nprocs_per_node: 3\n" SAVED);

    f->stays = false;
    fixture_watch(f, job, 3);
    fixture_exit(f, job, 0, 0, 9);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_NONE);
    lose_gpu_1(f);
    fixture_all_obey(f, "box1");
    assert_true(staying_spawn(f, job, 2)->r.revoked);
}

static void a_worker_on_a_lost_gpu_does_not_survive(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_on_gpus(f, "device: cuda\ngpus_per_proc: 1\nprocs_per_node: 2\n" SAVED);

    lose_gpu_1(f);
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
    int64_t job = staying_job_waits(f, FOUR SAVED);

    core_find_job(f->core, job)->spawns[0]->r.first_local_rank = 7;
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING); /* its slot is not free for another process */
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
}

/* A backup was restored from before the survivors' generation. Their calls about it wait until the nodes have told of it. */
static void restored_records_do_not_end_a_later_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

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
        TEST(a_rank_that_stands_still_is_replaced),
        TEST(the_replacement_may_die_at_once),
        TEST(a_replacement_that_never_ran_does_not_stay),
        TEST(ranks_of_the_first_forming_generation_do_not_stay),
        TEST(a_survivor_that_still_computes_is_waited_for),
        TEST(a_survivor_that_computes_is_not_lost_with_a_late_replacement),
        TEST(a_survivor_that_does_not_join_in_time_is_killed),
        TEST(survivors_go_on_with_a_spare_node),
        TEST(an_elastic_job_goes_on_with_fewer_nodes),
        TEST(a_survivor_without_a_rank_is_stopped),
        TEST(the_shown_step_does_not_go_back),
        TEST(a_placed_job_takes_only_what_its_new_processes_need),
        TEST(a_survivor_begins_its_generation_unsuspected),
        TEST(survivors_keep_their_gpus),
        TEST(a_worker_on_a_lost_gpu_does_not_survive),
        TEST(a_survivor_whose_gpu_is_lost_while_it_waits_does_not_go_on),
        TEST(a_survivor_whose_local_rank_is_gone_gets_no_rank),
        TEST(restored_records_do_not_end_a_later_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
