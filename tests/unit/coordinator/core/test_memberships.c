/* What the records of a spawn that is the member of one generation after another mean. So that its rank changes, these tests
 * drive the core's functions themselves: they end a generation without stopping its survivor, and give the survivor another
 * rank in the next one. test_survivors.c has what the core does by itself. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/cards/card_merge.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/stall.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/generation_stop.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define TWO "nodes: 2\nmax_restarts: 5\n" TRAIN "  snapshot: {dir: /out, every: 10}\n"

enum {
    SURVIVOR = 1,
    VICTIM = 2,
    NEWCOMER = 3
}; /* spawns: ranks 0 and 1 of generation 1, rank 0 of generation 2 */

/* What the core does before and after each event. */
static void begin_call(struct core_fixture *f)
{
    fixture_clear(f);
    f->core->now = f->now;
    f->core->out = &f->out;
}

static void end_call(struct core_fixture *f)
{
    core_tick(f->core, f->now, &f->out); /* follows internal events and sends wishes */
    fixture_clear(f);
}

/* Rank 1 dies, and generation 1 ends; rank 0 is not stopped. */
static void lose_rank_1(struct core_fixture *f, struct job *job)
{
    struct generation *g = job_current(job);
    struct spawn *victim = job_find_spawn(job, VICTIM);

    victim->r.exit_known = true;
    victim->r.signal = 9;
    spawn_mark_dead(f->core, victim);
    g->r.failed_spawn = VICTIM;
    emit_generation_move(f->core, g, GENERATION_FAILED, "rank 1 killed by signal 9 on box2");
    emit_generation(f->core, g, CHANGE_GENERATION_PUT);
    raise_generation_ended(f->core, g, "rank 1 killed by signal 9 on box2");
    emit_job_move(f->core, job, JOB_RECOVERING, "rank 1 killed by signal 9 on box2");
}

static void put_rank(struct core_fixture *f, struct generation *g, int rank, struct spawn *s)
{
    rank_give(&g->ranks[rank], s);
    rank_record_copy(&g->ranks[rank].r, &(struct rank_record){.job = g->r.job,
                                                              .generation = g->r.number,
                                                              .rank = rank,
                                                              .node_rank = rank,
                                                              .node = s->r.node,
                                                              .spawn = s->r.spawn,
                                                              .state = RANK_ASSIGNED});
    emit_rank(f->core, &g->ranks[rank], CHANGE_RANK_INSERT);
}

/* Generation 2: the survivor becomes rank 1, and a new spawn on box2 becomes rank 0. */
static void form_again(struct core_fixture *f, struct job *job)
{
    struct generation_record record = {.job = job->r.id,
                                       .number = 2,
                                       .state = GENERATION_FORMING,
                                       .world_size = 2,
                                       .node_count = 2,
                                       .master_addr = (char *)"10.0.0.7",
                                       .source_rank = -1,
                                       .created_ms = f->now.wall_ms};
    struct spawn_record newcomer = {.job = job->r.id,
                                    .spawn = job->r.next_spawn++,
                                    .first_generation = 2,
                                    .node = (char *)"box2",
                                    .token = {77},
                                    .token_hash = {77}};
    struct generation *g = job_add_generation(job, &record);

    g->join_at = f->now.boot_ms + job->spec.join_timeout_ms;
    job->r.generation = 2;
    emit_generation(f->core, g, CHANGE_GENERATION_INSERT);
    assert_int_equal(newcomer.spawn, NEWCOMER);
    put_rank(f, g, 0, job_add_spawn(f->core, job, &newcomer));
    emit_spawn(f->core, g->ranks[0].spawn, CHANGE_SPAWN_INSERT);
    put_rank(f, g, 1, job_find_spawn(job, SURVIVOR));
    emit_job(f->core, job, CHANGE_JOB_PUT);
    emit_job_move(f->core, job, JOB_STARTING, "box2 (1), box1 (1)");
}

static struct job *first_generation(struct core_fixture *f)
{
    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 4);
    int64_t job = fixture_submit(f, TWO);
    fixture_form(f, job);
    fixture_report(f, job, 0, 20, "loss", 0.5);
    assert_int_equal(fixture_spawn(f, job, 0), SURVIVOR);
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    return core_find_job(f->core, job);
}

static int64_t second_generation(struct core_fixture *f)
{
    struct job *job = first_generation(f);

    begin_call(f);
    lose_rank_1(f, job);
    form_again(f, job);
    end_call(f);
    return job->r.id;
}

static enum err_code join_as(struct core_fixture *f, int64_t job, int64_t generation, int rank)
{
    struct core_event event = {.kind = CORE_JOIN, .call = ++f->handles};

    event.member.job = job;
    event.member.spawn = SURVIVOR;
    event.join.generation = generation;
    event.join.rank = rank;
    core_event(f->core, &event, f->now, &f->out);
    const struct core_effect *reply = fixture_reply(f, event.call);
    return reply ? reply->err.code : ERR_OK;
}

static void its_calls_count_for_its_newest_rank(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = second_generation(f);
    const struct spawn *survivor = job_find_spawn(core_find_job(f->core, job), SURVIVOR);
    const struct spawn_record *found = core_find_token(f->core, survivor->r.token, sizeof(survivor->r.token));

    assert_ptr_equal(found, &survivor->r); /* by the token that it started with */
    assert_false(found->revoked);
    assert_int_equal(core_spawn_rank(f->core, job, SURVIVOR)->generation, 2);
    assert_int_equal(core_spawn_rank(f->core, job, SURVIVOR)->rank, 1);
    assert_int_equal(join_as(f, job, 1, 0), ERR_ABORTED); /* it was that */
    assert_int_equal(join_as(f, job, 2, 0), ERR_FAILED_PRECONDITION);
    assert_int_equal(fixture_commit(f, job, SURVIVOR, 1, 30, "d"), ERR_ABORTED);
    /* that it has joined generation 1 does not count for generation 2 */
    fixture_all_run(f, "box2");
    fixture_join(f, job, 0);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_FORMING);
    fixture_form(f, job);
    assert_int_equal(fixture_commit(f, job, SURVIVOR, 2, 30, "d"), ERR_OK);
    assert_true(fixture_reply(f, fixture_watch(f, job, SURVIVOR))->member);
    assert_int_equal(fixture_reply(f, fixture_watch(f, job, SURVIVOR))->rank, 1);
    assert_int_equal(fixture_reply(f, fixture_watch(f, job, SURVIVOR))->generation, 2);
}

static void its_node_wishes_it_to_go_on(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = second_generation(f);
    struct core_wish wish;
    struct err e;

    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.group_count, 1);
    assert_int_equal(wish.groups[0].generation, 2);
    assert_int_equal(wish.groups[0].spawn_count, 1);
    const struct core_wish_spawn *s = &wish.groups[0].spawns[0];
    assert_int_equal(s->spawn, SURVIVOR);
    assert_int_equal(s->stop, CORE_STOP_NONE);
    assert_int_equal(s->generation, 2);
    assert_int_equal(s->rank, 1);
    assert_int_equal(s->first_generation, 1); /* its output goes on in the same files */
    assert_int_equal(s->first_local_rank, 0);
    core_wish_release(&wish);
    /* what is done to the members of generation 1 does not concern it */
    begin_call(f);
    generation_stop_spawns(f->core, core_find_job(f->core, job)->generations[0], CORE_STOP_KILL);
    job_find_spawn(core_find_job(f->core, job), SURVIVOR)->proc_state = 'D'; /* it waits for its disk */
    stall_release(f->core, core_find_job(f->core, job)->generations[0]);
    end_call(f);
    assert_false(job_find_spawn(core_find_job(f->core, job), SURVIVOR)->r.dead);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_NONE);
    assert_int_equal(core_find_job(f->core, job)->generations[0]->stop_at, 0);
}

/* As rank 0 of generation 1 it leased a port of its node, and may hold it until it ends. */
static void no_other_job_gets_the_port_of_its_first_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = second_generation(f);
    int leased = core_generation(f->core, job, 1)->master_port;

    assert_true(leased > 0);
    for (int i = 0; i < 8; i++) { /* twice round through the node's four ports */
        int64_t other = fixture_submit(f, "nodes: 2\n");
        assert_string_equal(fixture_node_of(f, other, 0), "box1");
        assert_int_not_equal(fixture_generation(f, other)->master_port, leased);
        fixture_form(f, other);
        fixture_exit(f, other, 0, 0, 0);
        fixture_exit(f, other, 1, 0, 0);
        assert_int_equal(fixture_job(f, other), JOB_SUCCEEDED);
    }
}

static void facts_move_its_newest_rank(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = second_generation(f);

    fixture_form(f, job);
    assert_int_equal(core_rank(f->core, job, 2, 1)->state, RANK_JOINED);
    fixture_report(f, job, 1, 40, "loss", 0.4);
    assert_int_equal(core_rank(f->core, job, 2, 1)->state, RANK_TRAINING);
    fixture_exit(f, job, 1, 0, 9);
    assert_true(fixture_said(f, "rank 1 killed by signal 9 on box1"));
    assert_int_equal(core_generation(f->core, job, 2)->state, GENERATION_FAILED);
    assert_int_equal(core_generation(f->core, job, 2)->failed_spawn, SURVIVOR);
    assert_int_equal(core_rank(f->core, job, 2, 1)->state, RANK_EXITED);
    assert_int_equal(core_rank(f->core, job, 1, 0)->state, RANK_TRAINING); /* as it left generation 1 */
}

static void status_shows_each_generations_ranks(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = second_generation(f);
    struct core_job_status status;
    struct err e;
    size_t count;

    fixture_form(f, job);
    assert_int_equal(core_job_status(f->core, job, true, &status, &e), ERR_OK);
    assert_int_equal(status.rank_count, 2);
    assert_int_equal(status.ranks[1].rank->rank, 1);
    assert_int_equal(status.ranks[1].spawn->spawn, SURVIVOR);
    assert_int_equal(status.ranks[0].spawn->spawn, NEWCOMER);
    assert_string_equal(status.nodes[0], "box2");
    assert_int_equal(status.log_generation, 2); /* where rank 0 has its logs */
    assert_int_equal(status.failure->spawn, VICTIM);
    assert_int_equal(status.failure_rank->rank, 1);
    assert_int_equal(status.failure_rank->generation, 1);
    core_job_status_release(&status);
    struct core_member *members = core_members(f->core, job, 1, f->now, &count);
    assert_int_equal(count, 2);
    assert_int_equal(members[0].rank->rank, 0);
    assert_int_equal(members[0].spawn->spawn, SURVIVOR);
    free(members);
}

static void it_goes_on_after_a_restart_of_the_coordinator(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = second_generation(f);

    fixture_form(f, job);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_run(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    const struct spawn *s = job_find_spawn(core_find_job(f->core, job), SURVIVOR);
    assert_int_equal(s->rank->r.generation, 2);
    assert_int_equal(s->rank->r.rank, 1);
    assert_true(spawn_is_member(s));
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_NONE);
    assert_int_equal(core_find_job(f->core, job)->generations[0]->stop, CORE_STOP_NONE);
    assert_int_equal(fixture_commit(f, job, SURVIVOR, 2, 30, "d"), ERR_OK);
}

static enum core_stop stop_of_survivor(const struct core_fixture *f, int64_t job)
{
    enum core_stop stop = CORE_STOP_NONE;
    struct core_wish wish;
    struct err e;

    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].job, job);
    for (size_t i = 0; i < wish.groups[0].spawn_count; i++)
        if (wish.groups[0].spawns[i].spawn == SURVIVOR)
            stop = wish.groups[0].spawns[i].stop;
    core_wish_release(&wish);
    return stop;
}

/* Between two generations it is neither waited for nor stopped, not even by a coordinator that restarted. */
static void between_generations_it_holds_nothing_back(void **state)
{
    struct core_fixture *f = *state;
    struct job *job = first_generation(f);
    int64_t id = job->r.id;

    begin_call(f);
    lose_rank_1(f, job);
    job->not_before = f->now.boot_ms + 5000;
    fixture_clear(f); /* committed, and then the coordinator dies */
    f->core->out = NULL;
    assert_true(spawn_is_between(job_find_spawn(job, SURVIVOR)));
    assert_int_equal(core_spawn_rank(f->core, id, SURVIVOR)->generation, 1);
    fixture_restart(f);
    const struct spawn *s = job_find_spawn(core_find_job(f->core, id), SURVIVOR);
    assert_true(spawn_is_between(s));
    assert_false(spawn_is_member(s));
    assert_int_equal(s->rank->generation->stop, CORE_STOP_NONE);
    fixture_node(f, "box2", 4);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_run(f, "box1");
    f->stays = true;
    fixture_watch(f, id, SURVIVOR);
    assert_int_equal(core_generation(f->core, id, 2)->state,
                     GENERATION_FORMING); /* nothing else was waited for */
    assert_int_equal(stop_of_survivor(f, id), CORE_STOP_NONE);
    assert_int_equal(core_spawn_rank(f->core, id, SURVIVOR)->generation, 2);
}

/* A command's process has its rank in its environment only, so it cannot go on: the next generation waits for
 * its end. */
static void a_command_holds_the_next_generation_back(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 4);
    int64_t id = fixture_submit(f, "nodes: 2\nmax_restarts: 5\n");
    fixture_form(f, id);
    begin_call(f);
    lose_rank_1(f, core_find_job(f->core, id));
    end_call(f);
    assert_false(spawn_is_between(job_find_spawn(core_find_job(f->core, id), SURVIVOR)));
    assert_int_equal(fixture_job(f, id), JOB_RECOVERING);
    assert_string_equal(fixture_waits(f, id), "waits until rank 0 of generation 1 is known dead on box1");
}

static void a_card_has_it_once(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = second_generation(f);
    CLEANUP(records_release) struct records old = {0}, card = {0}, merged = {0};

    fixture_form(f, job);
    assert_true(core_card(f->core, job, &card));
    assert_int_equal(card.generation_count, 1); /* nobody of generation 1 alone lives */
    assert_int_equal(card.spawn_count, 2);
    assert_true(card_merge_is_sound(&card));
    /* a living spawn of generation 1 makes the card hold both generations, and the survivor still once */
    core_find_job(f->core, job)->spawns[1]->r.dead = false;
    assert_true(core_card(f->core, job, &old));
    core_find_job(f->core, job)->spawns[1]->r.dead = true;
    assert_int_equal(old.generation_count, 2);
    assert_int_equal(old.rank_count, 4);
    assert_int_equal(old.spawn_count, 3);
    assert_false(card_merge_has_forked(&old, &card));
    card_merge(&merged, &old, &card, 1);
    assert_int_equal(merged.spawn_count, 3);
    assert_false(card_merge_find_spawn(&merged, SURVIVOR)->dead);
    /* the same spawns hold the same ranks of a generation 2 that was formed at another time */
    card.generations[0].created_ms++;
    assert_true(card_merge_has_forked(&old, &card));
    card.generations[0].created_ms--;
    card.ranks[1].spawn = NEWCOMER; /* rank 0 is the same, rank 1 is not */
    assert_true(card_merge_has_forked(&old, &card));
}

/* Death is final, and ends the rank that the spawn holds, not the ranks that it has left. */
static void a_merge_ends_its_newest_rank_only(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = second_generation(f);
    CLEANUP(records_release) struct records card = {0}, none = {0}, merged = {0};

    fixture_form(f, job);
    core_find_job(f->core, job)->spawns[1]->r.dead = false; /* so that the card holds both generations */
    assert_true(core_card(f->core, job, &card));
    core_find_job(f->core, job)->spawns[1]->r.dead = true;
    card_merge(&merged, &none, &card, 1);
    for (size_t i = 0; i < merged.spawn_count; i++)
        if (merged.spawns[i].spawn == SURVIVOR)
            card_merge_end_spawn(&merged, &merged.spawns[i], 2);
    for (size_t i = 0; i < merged.rank_count; i++)
        if (merged.ranks[i].spawn == SURVIVOR)
            assert_int_equal(merged.ranks[i].state,
                             merged.ranks[i].generation == 2 ? RANK_LOST : RANK_TRAINING);
}

static void a_card_of_an_earlier_version_says_where_the_logs_are(void **state)
{
    struct core_fixture *f = *state;
    struct job *job = first_generation(f);

    fixture_clear(f);
    for (size_t i = 0; i < f->kept.spawn_count; i++) /* a column that was not there is zero */
        f->kept.spawns[i].first_generation = f->kept.spawns[i].first_local_rank = 0;
    for (size_t i = 0; i < f->kept.rank_count; i++)
        f->kept.ranks[i].local_rank = 3;
    int64_t id = job->r.id;
    fixture_restart(f);
    const struct spawn *s = job_find_spawn(core_find_job(f->core, id), SURVIVOR);
    assert_int_equal(s->r.first_generation, 1);
    assert_int_equal(s->r.first_local_rank, 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(its_calls_count_for_its_newest_rank),
        TEST(its_node_wishes_it_to_go_on),
        TEST(no_other_job_gets_the_port_of_its_first_generation),
        TEST(facts_move_its_newest_rank),
        TEST(status_shows_each_generations_ranks),
        TEST(it_goes_on_after_a_restart_of_the_coordinator),
        TEST(between_generations_it_holds_nothing_back),
        TEST(a_command_holds_the_next_generation_back),
        TEST(a_card_has_it_once),
        TEST(a_merge_ends_its_newest_rank_only),
        TEST(a_card_of_an_earlier_version_says_where_the_logs_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
