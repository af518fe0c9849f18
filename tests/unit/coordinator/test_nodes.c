/* Who is alive, whose processes are known dead, and what operators may say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core_test.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

static const struct core_effect *to_session(const struct bench *b, uint64_t session,
                                            enum core_effect_kind kind)
{
    for (size_t i = b->out.effect_count; i-- > 0;)
        if (b->out.effects[i].session == session && b->out.effects[i].kind == kind)
            return &b->out.effects[i];
    return NULL;
}

static void a_node_works_once_its_facts_agree(void **state)
{
    struct bench *b = *state;
    int64_t job = bench_submit(b, "");
    uint64_t session = bench_hello(b, "box1", "i", 1, 0);

    assert_non_null(to_session(b, session, EFFECT_WELCOME));
    assert_non_null(to_session(b, session, EFFECT_WISH));
    assert_int_equal(bench_node_state(b, "box1"), NODE_JOINING);
    struct core_event old = {.kind = CORE_FACTS, .session = session}; /* answers no wish of ours */
    core_event(b->core, &old, b->now, &b->out);
    assert_int_equal(bench_node_state(b, "box1"), NODE_JOINING);
    struct core_fact stranger = {.job = 99, .spawn = 3, .state = FACT_RUNNING};
    bench_facts(b, "box1", &stranger, 1);
    assert_int_equal(bench_node_state(b, "box1"), NODE_JOINING);
    assert_int_equal(bench_job(b, job), JOB_QUEUED);
    assert_true(bench_said(b, "box1 runs job 99, which this coordinator does not know"));
    struct core_node_status status;
    struct err e;
    assert_int_equal(core_node_status(b->core, "box1", b->now, &status, &e), ERR_OK);
    assert_int_equal(status.unknown_count, 1);
    assert_int_equal(status.unknown_jobs[0], 99);
    core_node_status_release(&status);
    bench_facts(b, "box1", NULL, 0);
    assert_int_equal(core_node_status(b->core, "box1", b->now, &status, &e), ERR_OK);
    assert_int_equal(status.unknown_count, 0);
    core_node_status_release(&status);
    assert_int_equal(bench_node_state(b, "box1"), NODE_ALIVE);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
}

static void silence_makes_suspect_then_lost(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 1\n");
    bench_form(b, job);
    bench_pass(b, 7000);
    assert_int_equal(bench_node_state(b, "box1"), NODE_SUSPECT);
    bench_pass_beating(b, 1000, "box1");
    assert_int_equal(bench_node_state(b, "box1"), NODE_ALIVE);
    bench_pass(b, 7000); /* again, though the next deadline was already planned for later */
    assert_int_equal(bench_node_state(b, "box1"), NODE_SUSPECT);
    bench_pass(b, 2100);
    assert_int_equal(bench_node_state(b, "box1"), NODE_LOST);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    assert_int_equal(core_job(b->core, job)->restarts_used, 1);
    assert_true(bench_said(b, "node box1 lost: no word for 9 s"));
}

static void a_closed_stream_is_no_loss(void **state)
{
    struct bench *b = *state;
    struct core_event closed = {.kind = CORE_SESSION_CLOSED, .session = bench_node(b, "box1", 1)};
    int64_t job = bench_submit(b, "max_restarts: 0\n");

    bench_form(b, job);
    core_event(b->core, &closed, b->now, &b->out);
    bench_pass(b, 6000);
    bench_hello(b, "box1", "box1", 1, 0);
    bench_all_run(b, "box1");
    bench_pass(b, 6000);
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
}

static void the_newest_session_wins(void **state)
{
    struct bench *b = *state;
    uint64_t old = bench_node(b, "box1", 1), fresh = bench_hello(b, "box1", "box1", 1, 0);

    assert_non_null(to_session(b, old, EFFECT_CLOSE));
    assert_non_null(to_session(b, fresh, EFFECT_WISH));
    bench_clear(b);
    core_event(b->core, &(struct core_event){.kind = CORE_HEARTBEAT, .session = old}, b->now, &b->out);
    assert_null(to_session(b, old, EFFECT_ACK));
    core_event(b->core, &(struct core_event){.kind = CORE_SESSION_CLOSED, .session = old}, b->now, &b->out);
    core_event(b->core, &(struct core_event){.kind = CORE_HEARTBEAT, .session = fresh}, b->now, &b->out);
    assert_non_null(to_session(b, fresh, EFFECT_ACK));
}

static void a_second_instance_is_refused_while_workers_may_live(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "lease: 30s\nmax_restarts: 1\n");
    bench_form(b, job);
    uint64_t other = bench_hello(b, "box1", "other", 1, 0);
    assert_int_equal(to_session(b, other, EFFECT_REFUSE)->err.code, ERR_ALREADY_EXISTS);
    bench_pass(b, 20000);
    other = bench_hello(b, "box1", "other", 1, 0);
    assert_int_equal(to_session(b, other, EFFECT_REFUSE)->err.code, ERR_UNAVAILABLE);
    bench_pass(b, 15000);
    other = bench_hello(b, "box1", "other", 1, 0);
    assert_non_null(to_session(b, other, EFFECT_WELCOME));
}

static void other_clusters_and_newer_epochs_are_refused(void **state)
{
    struct bench *b = *state;
    struct core_event event = {.kind = CORE_HELLO, .session = 900};

    event.hello = (struct core_hello){.node = "box9", .instance = "i", .cluster_id = "c2"};
    core_event(b->core, &event, b->now, &b->out);
    assert_int_equal(to_session(b, 900, EFFECT_REFUSE)->err.code, ERR_FAILED_PRECONDITION);
    event.session = 901;
    event.hello.cluster_id = "c1";
    event.hello.epoch = 7;
    core_event(b->core, &event, b->now, &b->out);
    assert_int_equal(to_session(b, 901, EFFECT_REFUSE)->err.code, ERR_FAILED_PRECONDITION);
    assert_null(core_node(b->core, "box9"));
}

static void odd_hellos_do_no_harm(void **state)
{
    struct bench *b = *state;
    struct core_gpu twins[] = {{.uuid = (char *)"GPU-1", .healthy = true},
                               {.uuid = (char *)"GPU-1", .healthy = true},
                               {.uuid = NULL, .healthy = true}};
    struct core_event event = {.kind = CORE_HELLO, .session = 900};

    event.hello = (struct core_hello){.node = "box9", .instance = "i", .port_first = 1, .port_last = 70000};
    core_event(b->core, &event, b->now, &b->out);
    assert_int_equal(to_session(b, 900, EFFECT_REFUSE)->err.code, ERR_INVALID_ARGUMENT);
    event.hello.port_last = 2;
    event.hello.node = "";
    core_event(b->core, &event, b->now, &b->out);
    assert_int_equal(to_session(b, 900, EFFECT_REFUSE)->err.code, ERR_INVALID_ARGUMENT);
    event.hello.node = "box9";
    event.hello.gpus = twins;
    event.hello.gpu_count = 3;
    core_event(b->core, &event, b->now, &b->out);
    struct core_node_status status;
    struct err e;
    assert_int_equal(core_node_status(b->core, "box9", b->now, &status, &e), ERR_OK);
    assert_int_equal(status.gpu_count, 1);
    core_node_status_release(&status);
}

static void a_command_job_moves_only_after_the_lease(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 3\n");
    bench_form(b, job);
    bench_node(b, "box2", 1);
    bench_pass_beating(b, 50000, "box2");
    assert_int_equal(bench_node_state(b, "box1"), NODE_LOST);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    assert_string_equal(bench_waits(b, job), "waits until rank 0 of generation 1 is known dead on box1");
    bench_pass_beating(b, 13000, "box2");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_string_equal(bench_node_of(b, job, 0), "box2");
}

static void forget_says_that_they_are_dead(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 3\n");
    bench_form(b, job);
    bench_node(b, "box2", 1);
    bench_operator(b, CORE_FORGET, "box1");
    assert_int_equal(bench_reply(b, b->handles)->err.code, ERR_FAILED_PRECONDITION); /* it is alive */
    bench_pass_beating(b, 12000, "box2");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    bench_operator(b, CORE_FORGET, "box1");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_null(core_node(b->core, "box1"));
    struct core_fact zombie = {.job = job, .spawn = 1, .state = FACT_RUNNING}; /* the operator was wrong */
    bench_hello(b, "box1", "box1", 1, 0);
    bench_facts(b, "box1", &zombie, 1);
    assert_int_equal(bench_node_state(b, "box1"), NODE_JOINING);
}

static void a_native_job_moves_at_once_but_not_into_slots_that_may_be_held(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 3\n" TRAIN SNAPSHOTS);
    bench_form(b, job);
    int64_t old = bench_spawn(b, job, 0);
    bench_node(b, "box2", 1);
    bench_pass_beating(b, 12000, "box2");
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    bench_form(b, job);
    assert_int_equal(bench_commit(b, job, old, 1, 10, "d"), ERR_ABORTED); /* fenced */
    int64_t next = bench_submit(b, "");
    bench_hello(b, "box1", "box1", 1, 0); /* the lost node is back, its worker still runs */
    struct core_fact alive = {.job = job, .spawn = old, .state = FACT_RUNNING};
    bench_facts(b, "box1", &alive, 1);
    assert_int_equal(bench_job(b, next), JOB_QUEUED);
    alive.state = FACT_EXITED;
    bench_facts(b, "box1", &alive, 1);
    assert_int_equal(bench_job(b, next), JOB_STARTING);
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
}

static void an_elastic_job_goes_on_with_less(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    int64_t job = bench_submit(b, "nodes: \"1:2\"\nmax_restarts: 3\n" TRAIN SNAPSHOTS);
    bench_form(b, job);
    bench_pass_beating(b, 10000, "box2");
    bench_all_obey(b, "box2");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(bench_generation(b, job)->world_size, 1);
    assert_int_equal(core_job(b->core, job)->restarts_used, 1); /* one loss, charged once */
}

static void a_fixed_job_waits_for_its_node(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    int64_t job = bench_submit(b, "nodes: 2\nmax_restarts: 3\n" TRAIN SNAPSHOTS);
    bench_form(b, job);
    bench_pass_beating(b, 10000, "box2");
    bench_all_obey(b, "box2");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    assert_string_equal(bench_waits(b, job),
                        "waits for 2 nodes with 1 slot each: the cluster has 1, 1 more is lost or drained");
    bench_hello(b, "box1", "box1", 1, 0);
    bench_all_obey(b, "box1");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
}

static void absence_counts_from_the_wish_on(void **state)
{
    struct bench *b = *state;
    struct core_event early = {.kind = CORE_FACTS, .session = bench_node(b, "box1", 1)};
    struct core_wish wish;
    struct err e;

    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    early.facts.epoch = wish.epoch;
    early.facts.revision = wish.revision;
    core_wish_release(&wish);
    int64_t job = bench_submit(b, "max_restarts: 3\n");
    core_event(b->core, &early, b->now, &b->out); /* sent before the wish came */
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    bench_restart(b);
    bench_hello(b, "box1", "box1", 1, 0);
    early.session = b->handles;
    early.facts.revision = 1000; /* of the former epoch */
    core_event(b->core, &early, b->now, &b->out);
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    bench_facts(b, "box1", NULL, 0);
    assert_int_equal(core_job(b->core, job)->restarts_used, 1);
    assert_true(bench_said(b, "rank 0 on box1 was lost, nobody saw its exit"));
}

static void after_a_restart_the_whole_lease_is_waited(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 3\n");
    bench_form(b, job);
    bench_node(b, "box2", 1);
    bench_pass_beating(b, 40000, "box2");
    bench_restart(b);
    bench_hello(b, "box2", "box2", 1, 0);
    bench_facts(b, "box2", NULL, 0);
    bench_pass_beating(b, 55000, "box2");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    bench_pass_beating(b, 10000, "box2");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
}

static void a_restart_of_ours_costs_nothing(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 2);
    int64_t job = bench_submit(b, "procs_per_node: 2\nmax_restarts: 0\n" TRAIN SNAPSHOTS);
    bench_form(b, job);
    bench_restart(b);
    bench_pass(b, 20000); /* agents may need a while to find us again */
    bench_hello(b, "box1", "box1", 2, 0);
    bench_all_run(b, "box1");
    bench_pass_beating(b, 60000, "box1");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_exit(b, job, 0, 0, 0);
    bench_exit(b, job, 1, 0, 0);
    assert_int_equal(bench_job(b, job), JOB_SUCCEEDED);
}

static void standing_still_ourselves_loses_no_node(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_pass_beating(b, 3000, "box1");
    b->now.boot_ms += 600000; /* suspended: words from the nodes wait unread */
    core_tick(b->core, b->now, &b->out);
    assert_int_equal(bench_node_state(b, "box1"), NODE_SUSPECT);
    bench_pass_beating(b, 3000, "box1");
    assert_int_equal(bench_node_state(b, "box1"), NODE_ALIVE);
}

static void deaf(struct bench *b, int64_t ms, bool outside)
{
    const struct core_event event = {.kind = CORE_DEAF, .deaf = {.ms = ms, .outside = outside}};

    core_event(b->core, &event, b->now, &b->out);
}

/* Time passes in which nothing is heard, and the core is told, as the service does, before each tick. */
static void pass_deaf(struct bench *b, int64_t ms, int64_t share, bool outside)
{
    for (int64_t i = 0; i < ms; i += 500) {
        b->now.boot_ms += 500;
        deaf(b, 500 * share / 100, outside);
        core_tick(b->core, b->now, &b->out);
    }
}

static void our_deafness_is_no_silence(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_pass_beating(b, 3000, "box1");
    pass_deaf(b, 600000, 100, false);
    assert_int_equal(bench_node_state(b, "box1"), NODE_ALIVE);
    bench_pass(b, 29000); /* as after a start of ours */
    assert_int_not_equal(bench_node_state(b, "box1"), NODE_LOST);
    bench_pass(b, 1100);
    assert_int_equal(bench_node_state(b, "box1"), NODE_LOST);
}

static void half_deaf_takes_twice_as_long(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    pass_deaf(b, 4000, 50, false); /* 250 ms each */
    bench_pass_beating(b, 10, "box1");
    pass_deaf(b, 17000, 50, false);
    assert_int_not_equal(bench_node_state(b, "box1"), NODE_LOST);
    pass_deaf(b, 2000, 50, false);
    assert_int_equal(bench_node_state(b, "box1"), NODE_LOST);
}

static void whoever_is_locked_out_is_not_lost(void **state)
{
    struct bench *b = *state;
    struct core_event closed = {.kind = CORE_SESSION_CLOSED, .session = bench_node(b, "box1", 1)};

    bench_node(b, "box2", 1);
    core_event(b->core, &closed, b->now, &b->out);
    for (int i = 0; i < 60; i++) { /* box2 is heard all the while */
        bench_pass_beating(b, 1000, "box2");
        deaf(b, 1000, true);
    }
    assert_int_not_equal(bench_node_state(b, "box1"), NODE_LOST);
    bench_pass(b, 9100);
    assert_int_equal(bench_node_state(b, "box2"), NODE_LOST); /* a silence of its own */
    bench_pass(b, 21000);
    assert_int_equal(bench_node_state(b, "box1"), NODE_LOST);
}

/* Anybody can knock at the port: that must not keep a dead node's job from going on elsewhere for ever. */
static void who_knocks_for_ever_keeps_no_node_alive(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_pass_beating(b, 3000, "box1");
    pass_deaf(b, 240000, 100, true);
    assert_int_not_equal(bench_node_state(b, "box1"), NODE_LOST);
    pass_deaf(b, 100000, 100, true);
    assert_int_equal(bench_node_state(b, "box1"), NODE_LOST);
}

static void the_wall_clock_decides_nothing(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "time_limit: 1h\n");
    bench_form(b, job);
    b->now.wall_ms += 86400000;
    bench_pass_beating(b, 10000, "box1");
    b->now.wall_ms -= 2 * 86400000LL;
    bench_pass_beating(b, 10000, "box1");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    assert_int_equal(bench_node_state(b, "box1"), NODE_ALIVE);
}

static void a_drain_moves_train_jobs_off_and_charges_nothing(void **state)
{
    struct bench *b = *state;
    struct core_node_status status;
    struct err e;

    bench_node(b, "box1", 2);
    int64_t train = bench_submit(b, "max_restarts: 0\n" TRAIN SNAPSHOTS), command = bench_submit(b, "");
    bench_form(b, train);
    bench_form(b, command);
    bench_node(b, "box2", 2);
    bench_operator(b, CORE_DRAIN, "box1");
    assert_int_equal(bench_node_state(b, "box1"), NODE_DRAINING);
    assert_int_equal(bench_stop(b, train, 0), CORE_STOP_SNAPSHOT);
    assert_int_equal(bench_stop(b, command, 0), CORE_STOP_NONE);
    bench_report(b, train, 0, 44, NULL, 0);
    assert_int_equal(bench_commit(b, train, bench_spawn(b, train, 0), 1, 44, "d"), ERR_OK);
    bench_all_obey(b, "box1");
    assert_string_equal(bench_node_of(b, train, 0), "box2");
    assert_true(bench_said(b, "stopped at step 44; generation 1 closed (not charged)"));
    assert_int_equal(core_job(b->core, train)->restarts_used, 0);
    bench_exit(b, command, 0, 0, 0);
    assert_int_equal(core_node_status(b->core, "box1", b->now, &status, &e), ERR_OK);
    assert_string_equal(status.state, "drained");
    core_node_status_release(&status);
    int64_t next = bench_submit(b, "procs_per_node: 2\n");
    assert_int_equal(bench_job(b, next), JOB_QUEUED);
    bench_operator(b, CORE_UNDRAIN, "box1");
    assert_int_equal(bench_job(b, next), JOB_STARTING);
}

static void a_drain_outlives_a_loss(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_operator(b, CORE_DRAIN, "box1");
    bench_pass(b, 10000);
    assert_int_equal(bench_node_state(b, "box1"), NODE_LOST);
    bench_restart(b);
    bench_node(b, "box1", 1);
    assert_int_equal(bench_node_state(b, "box1"), NODE_DRAINING);
}

static void goodbye_is_not_charged(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 0\n" TRAIN SNAPSHOTS);
    bench_form(b, job);
    bench_node(b, "box2", 1);
    struct core_event bye = {.kind = CORE_GOODBYE, .session = b->handles - 1};
    for (uint64_t session = 1; session <= b->handles; session++) {
        bye.session = session;
        if (bench_node_state(b, "box1") == NODE_ALIVE && session < b->handles)
            core_event(b->core, &bye, b->now, &b->out);
    }
    assert_int_equal(bench_node_state(b, "box1"), NODE_LEFT);
    assert_int_equal(core_job(b->core, job)->restarts_used, 0);
    assert_string_equal(bench_node_of(b, job, 0), "box2");
}

static void exit_records_stay_wanted_until_they_are_committed(void **state)
{
    struct bench *b = *state;
    struct core_wish wish;
    struct err e;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 0\n");
    bench_form(b, job);
    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].spawn_count, 1);
    core_wish_release(&wish);
    bench_exit(b, job, 0, 1, 0);
    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.group_count, 0);
    core_wish_release(&wish);
    for (size_t i = 0; i < b->kept.spawn_count; i++)
        assert_true(b->kept.spawns[i].exit_known);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_node_works_once_its_facts_agree),
        TEST(silence_makes_suspect_then_lost),
        TEST(a_closed_stream_is_no_loss),
        TEST(the_newest_session_wins),
        TEST(a_second_instance_is_refused_while_workers_may_live),
        TEST(other_clusters_and_newer_epochs_are_refused),
        TEST(odd_hellos_do_no_harm),
        TEST(a_command_job_moves_only_after_the_lease),
        TEST(forget_says_that_they_are_dead),
        TEST(a_native_job_moves_at_once_but_not_into_slots_that_may_be_held),
        TEST(an_elastic_job_goes_on_with_less),
        TEST(a_fixed_job_waits_for_its_node),
        TEST(absence_counts_from_the_wish_on),
        TEST(after_a_restart_the_whole_lease_is_waited),
        TEST(a_restart_of_ours_costs_nothing),
        TEST(standing_still_ourselves_loses_no_node),
        TEST(our_deafness_is_no_silence),
        TEST(half_deaf_takes_twice_as_long),
        TEST(whoever_is_locked_out_is_not_lost),
        TEST(who_knocks_for_ever_keeps_no_node_alive),
        TEST(the_wall_clock_decides_nothing),
        TEST(a_drain_moves_train_jobs_off_and_charges_nothing),
        TEST(a_drain_outlives_a_loss),
        TEST(goodbye_is_not_charged),
        TEST(exit_records_stay_wanted_until_they_are_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
