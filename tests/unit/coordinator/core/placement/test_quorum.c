/* Rounds that close without late members: when they close, with which members, and how late members come back. */
#include "tests/unit/base/check.h"

#include <stdlib.h>

#include "daemon/coordinator/core/placement/quorum.h"
#include "tests/unit/coordinator/core/placement/staying_job.h"

#define GRACE_MS 5000
#define JOB "nodes: 3\nprocs_per_node: 1\n" SAVED "  sync: {type: diloco, every: 10, quorum: 2, grace: 5s}\n"
#define NODES "box1 box2 box3"

static struct job *job_at(const struct core_fixture *f, int64_t job)
{
    return core_find_job(f->core, job);
}

static int64_t job_of_three_from(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    return staying_job(f, file);
}

static int64_t job_of_three(struct core_fixture *f)
{
    return job_of_three_from(f, JOB);
}

/* The spawn has come to the exchange. Returns its Watch. */
static uint64_t spawn_comes(struct core_fixture *f, int64_t job, int64_t spawn, int64_t exchange, bool holds)
{
    f->arrived = exchange;
    f->holds = holds;
    const uint64_t watch = fixture_watch(f, job, spawn);
    f->arrived = 0;
    f->holds = false;
    return watch;
}

/* Spawns 1 and 3 come to exchange 4, and spawn 2 is late. */
static void close_without_two(struct core_fixture *f, int64_t job)
{
    spawn_comes(f, job, 1, 4, false);
    spawn_comes(f, job, 3, 4, false);
    fixture_pass_beating(f, GRACE_MS + 1, NODES);
    fixture_pass(f, 0);
    assert_int_equal(fixture_generation(f, job)->number, 2);
}

static void a_round_closes_at_its_quorum_after_the_grace(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);
    const uint64_t late = fixture_watch(f, job, 2);

    spawn_comes(f, job, 1, 4, false);
    fixture_pass_beating(f, 2 * GRACE_MS, NODES); /* one of three is no quorum */
    fixture_pass(f, 0);
    assert_int_equal(fixture_generation(f, job)->number, 1);
    const uint64_t kept = spawn_comes(f, job, 3, 4, false);
    fixture_pass_beating(f, GRACE_MS - 100, NODES);
    assert_int_equal(fixture_generation(f, job)->number, 1);
    fixture_pass(f, 101);
    fixture_pass(f, 0);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
    assert_int_equal(core_generation(f->core, job, 1)->state, GENERATION_CLOSED);
    assert_true(fixture_spawn(f, job, 0) == 1 && fixture_spawn(f, job, 1) == 3);
    assert_string_equal(staying_watch_says(f, kept), "member");
    assert_string_equal(staying_watch_says(f, late), "wait");
    assert_true(fixture_reply(f, late)->late);
    assert_false(staying_spawn(f, job, 2)->r.revoked);
    assert_true(fixture_said(f, "rank 1 (box2) was late for round 4: the round closed with 2 of 3"));
    staying_job_rejoin(f, job, 40);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

static void a_round_to_which_all_come_closes_nothing(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);

    for (int64_t spawn = 1; spawn <= 3; spawn++)
        spawn_comes(f, job, spawn, 4, false);
    fixture_pass_beating(f, 3 * GRACE_MS, NODES);
    fixture_pass(f, 0);
    assert_int_equal(fixture_generation(f, job)->number, 1);
}

/* The member is stopped during the exchange, and blocks the others. */
static void a_member_that_stands_still_in_the_exchange_is_late(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);

    for (int64_t spawn = 1; spawn <= 3; spawn++)
        spawn_comes(f, job, spawn, 4, false);
    job_find_spawn(job_at(f, job), 2)->proc_state = 'T';
    fixture_pass_beating(f, GRACE_MS + 1, NODES);
    spawn_comes(f, job, 1, 4, false);
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
    assert_true(fixture_said(f, "rank 1 (box2) was late for round 4: the round closed with 2 of 3"));
}

static void a_late_member_comes_back_before_the_next_exchange(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);

    close_without_two(f, job);
    staying_job_rejoin(f, job, 40);
    const uint64_t member = fixture_watch(f, job, 1);
    spawn_comes(f, job, 2, 4, true);
    assert_int_equal(fixture_reply(f, member)->hold, 5); /* exchange 4 is made first */
    spawn_comes(f, job, 1, 4, false);
    spawn_comes(f, job, 3, 4, false);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    spawn_comes(f, job, 1, 5, false);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    spawn_comes(f, job, 3, 5, true);
    assert_int_equal(fixture_generation(f, job)->number, 3);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(fixture_spawn(f, job, rank), rank + 1);
    assert_true(fixture_said(f, "rank 1 (box2) came back after 1 round: its change counts half"));
    staying_job_rejoin(f, job, 50);
    assert_int_equal(fixture_reply(f, fixture_watch(f, job, 1))->hold, 0);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

/* A job whose rounds close again and again has as many generations. Old ones that are the last one of no spawn are removed, and
 * the others are enough after a restart of the coordinator. */
static void old_generations_are_removed(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);
    enum { KEPT = 4, ROUNDS = 6 };

    f->core->config.keep_generations = f->config.keep_generations = KEPT;
    for (int64_t round = 0, exchange = 4; round < ROUNDS; round++, exchange += 2) {
        spawn_comes(f, job, 1, exchange, false);
        spawn_comes(f, job, 3, exchange, false);
        fixture_pass_beating(f, GRACE_MS + 1, NODES);
        fixture_pass(f, 0);
        assert_int_equal(fixture_generation(f, job)->number, 2 + 2 * round);
        staying_job_rejoin(f, job, 10 * exchange);
        spawn_comes(f, job, 2, exchange, true);
        spawn_comes(f, job, 1, exchange, false);
        spawn_comes(f, job, 3, exchange, false);
        spawn_comes(f, job, 1, exchange + 1, false);
        spawn_comes(f, job, 3, exchange + 1, true);
        assert_int_equal(fixture_generation(f, job)->number, 3 + 2 * round);
        staying_job_rejoin(f, job, 10 * exchange + 5);
    }
    const int64_t newest = fixture_generation(f, job)->number;
    assert_int_equal(newest, 1 + 2 * ROUNDS);
    for (int64_t number = 1; number <= newest; number++)
        assert_int_equal(core_generation(f->core, job, number) != NULL,
                         number == 1 || number > newest - KEPT);
    fixture_restart(f);
    assert_int_equal(fixture_generation(f, job)->number, newest);
    assert_null(core_generation(f->core, job, 2));
    assert_int_equal(fixture_generation(f, job)->world_size, 3);
}

/* All have begun the exchange before they heard of it: it goes on, and the late member waits for the next one. */
static void an_exchange_that_nobody_holds_is_not_cut_off(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);

    close_without_two(f, job);
    staying_job_rejoin(f, job, 40);
    spawn_comes(f, job, 2, 4, true);
    spawn_comes(f, job, 1, 5, false);
    spawn_comes(f, job, 3, 5, false);
    fixture_pass_beating(f, 2 * GRACE_MS, NODES);
    fixture_pass(f, 0);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    spawn_comes(f, job, 3, 6, true);
    spawn_comes(f, job, 1, 6, false);
    assert_true(fixture_said(f, "rank 1 (box2) came back after 2 rounds: its change counts a quarter"));
}

static void a_late_member_that_dies_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);

    close_without_two(f, job);
    staying_job_rejoin(f, job, 40);
    const struct spawn_fact facts[] = {
        {.job = job, .spawn = 2, .state = SPAWN_EXITED, .pid = 1, .signal = 9}};
    fixture_facts(f, "box2", facts, 1);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_true(fixture_said(f, "rank 1 (box2), which was late, has ended: its change is dropped"));
    assert_int_not_equal(job_at(f, job)->handover.number, 0);
    f->ready = job_at(f, job)->handover.number;
    fixture_watch(f, job, 1);
    fixture_watch(f, job, 3);
    f->ready = 0;
    assert_int_equal(fixture_generation(f, job)->world_size, 3);
    assert_string_equal(fixture_node_of(f, job, 2), "box2");
    assert_int_equal(fixture_spawn(f, job, 2), 4);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

/* The members do not wait for it, so the job does not stand still. */
static void a_late_member_that_computes_for_ever_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three_from(f, "stall_timeout: 60s\n" JOB);
    const struct core_activity quiet = {.job = job, .spawn = 2, .idle_ms = -1, .silent_ms = 30000};

    close_without_two(f, job);
    staying_job_rejoin(f, job, 40);
    core_event(f->core,
               &(struct core_event){.kind = CORE_ACTIVITY,
                                    .session = core_find_node(f->core, "box2")->session,
                                    .activity = {&quiet, 1}},
               f->now, &f->out);
    fixture_pass_beating(f, 29000, NODES);
    assert_false(staying_spawn(f, job, 2)->r.revoked);
    fixture_pass_beating(f, 2000, NODES);
    assert_true(fixture_said(f, "rank 1 (box2) was late and does not come back: its change is dropped"));
    assert_true(staying_spawn(f, job, 2)->r.revoked);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void a_failure_keeps_only_late_members_that_hold(void **state)
{
    for (int holds = 0; holds < 2; holds++) {
        struct core_fixture *f = *state;
        const int64_t job = job_of_three(f);

        close_without_two(f, job);
        staying_job_rejoin(f, job, 40);
        if (holds)
            spawn_comes(f, job, 2, 4, true);
        fixture_exit(f, job, 1, 0, 9);
        assert_int_equal(staying_spawn(f, job, 2)->r.revoked, !holds);
        assert_int_equal(fixture_said(f, "rank 1 (box2) had not come back: its change is dropped"), !holds);
        fixture_teardown(state);
        fixture_setup(state);
    }
}

/* Spawn 2 had come to the exchange of a generation that failed. In the next one it has to come again. */
static void a_survivor_comes_to_its_exchange_again(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);

    spawn_comes(f, job, 2, 4, false);
    fixture_exit(f, job, 2, 0, 9);
    staying_job_rejoin(f, job, 40);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_spawn(f, job, 1), 2);
    spawn_comes(f, job, 1, 4, false);
    fixture_pass_beating(f, 2 * GRACE_MS, NODES);
    fixture_pass(f, 0);
    assert_int_equal(fixture_generation(f, job)->number, 2);
}

static void a_job_that_is_cancelled_ends_its_late_members(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);

    close_without_two(f, job);
    staying_job_rejoin(f, job, 40);
    fixture_cancel(f, job, false);
    assert_true(staying_spawn(f, job, 2)->r.revoked);
    assert_int_equal(core_generation(f->core, job, 2)->state, GENERATION_DRAINING);
}

static void a_restarted_coordinator_takes_late_members_back(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_of_three(f);

    close_without_two(f, job);
    staying_job_rejoin(f, job, 40);
    fixture_pass(f, 10);
    fixture_restart(f);
    for (int i = 1; i <= 3; i++) {
        char node[16];
        snprintf(node, sizeof(node), "box%d", i);
        fixture_hello(f, node, node, 1, 0);
        fixture_all_run(f, node);
    }
    assert_true(fixture_reply(f, spawn_comes(f, job, 2, 4, true))->late);
    spawn_comes(f, job, 1, 5, false);
    spawn_comes(f, job, 3, 5, true);
    assert_int_equal(fixture_generation(f, job)->world_size, 3);
}

static void the_grace_follows_the_last_arrivals(void **state)
{
    const int64_t few[] = {1, 2, 3}, even[] = {2000, 2000, 2000, 2000}, quick[] = {10, 20, 10, 30},
                  spread[] = {1000, 2000, 3000, 4000, 20000}, slow[] = {700000, 700000, 700000, 700000};

    (void)state;
    assert_int_equal(quorum_grace_ms(few, 3), 30000);
    assert_int_equal(quorum_grace_ms(even, 4), 2000);
    assert_int_equal(quorum_grace_ms(quick, 4), 1000);
    assert_int_equal(quorum_grace_ms(spread, 5), 3000 + 4 * 1000);
    assert_int_equal(quorum_grace_ms(slow, 4), 600000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_round_closes_at_its_quorum_after_the_grace),
        TEST(a_round_to_which_all_come_closes_nothing),
        TEST(a_member_that_stands_still_in_the_exchange_is_late),
        TEST(a_late_member_comes_back_before_the_next_exchange),
        TEST(old_generations_are_removed),
        TEST(an_exchange_that_nobody_holds_is_not_cut_off),
        TEST(a_late_member_that_dies_is_replaced),
        TEST(a_late_member_that_computes_for_ever_is_replaced),
        TEST(a_failure_keeps_only_late_members_that_hold),
        TEST(a_survivor_comes_to_its_exchange_again),
        TEST(a_job_that_is_cancelled_ends_its_late_members),
        TEST(a_restarted_coordinator_takes_late_members_back),
        cmocka_unit_test(the_grace_follows_the_last_arrivals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
