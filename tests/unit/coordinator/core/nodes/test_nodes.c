/* Which nodes are alive, whose processes are known dead, and what operators may do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

static const struct core_effect *to_session(const struct core_fixture *f, uint64_t session,
                                            enum core_effect_kind kind)
{
    for (size_t i = f->out.effect_count; i-- > 0;)
        if (f->out.effects[i].session == session && f->out.effects[i].kind == kind)
            return &f->out.effects[i];
    return NULL;
}

static void a_node_is_alive_once_its_facts_have_answered(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, "");
    uint64_t session = fixture_hello(f, "box1", "i", 1, 0);

    assert_non_null(to_session(f, session, EFFECT_WELCOME));
    assert_non_null(to_session(f, session, EFFECT_WISH));
    assert_int_equal(fixture_node_state(f, "box1"), NODE_JOINING);
    struct core_event old = {.kind = CORE_FACTS, .session = session}; /* answers no wish */
    core_event(f->core, &old, f->now, &f->out);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_JOINING);
    struct spawn_fact stranger = {.job = 99, .spawn = 3, .state = SPAWN_RUNNING};
    fixture_facts(f, "box1", &stranger, 1);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_JOINING);
    assert_int_equal(fixture_job(f, job), JOB_QUEUED);
    assert_true(fixture_said(f, "box1 runs job 99, which this coordinator does not know"));
    struct core_node_status status;
    struct err e;
    assert_int_equal(core_node_status(f->core, "box1", f->now, &status, &e), ERR_OK);
    assert_int_equal(status.unknown_count, 1);
    assert_int_equal(status.unknown_jobs[0], 99);
    core_node_status_release(&status);
    fixture_facts(f, "box1", NULL, 0);
    assert_int_equal(core_node_status(f->core, "box1", f->now, &status, &e), ERR_OK);
    assert_int_equal(status.unknown_count, 0);
    core_node_status_release(&status);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_ALIVE);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void silence_makes_a_node_suspect_and_then_lost(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 1\n");
    fixture_form(f, job);
    fixture_pass(f, 7000);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_SUSPECT);
    fixture_pass_beating(f, 1000, "box1");
    assert_int_equal(fixture_node_state(f, "box1"), NODE_ALIVE);
    fixture_pass(f, 7000); /* again, though the next deadline was already planned for later */
    assert_int_equal(fixture_node_state(f, "box1"), NODE_SUSPECT);
    fixture_pass(f, 2100);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_true(fixture_said(f, "node box1 lost: no message for 9 s"));
}

static void a_closed_stream_does_not_lose_the_node(void **state)
{
    struct core_fixture *f = *state;
    struct core_event closed = {.kind = CORE_SESSION_CLOSED, .session = fixture_node(f, "box1", 1)};
    int64_t job = fixture_submit(f, "max_restarts: 0\n");

    fixture_form(f, job);
    core_event(f->core, &closed, f->now, &f->out);
    fixture_pass(f, 6000);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_all_run(f, "box1");
    fixture_pass(f, 6000);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void the_newest_session_wins(void **state)
{
    struct core_fixture *f = *state;
    uint64_t old = fixture_node(f, "box1", 1), fresh = fixture_hello(f, "box1", "box1", 1, 0);

    assert_non_null(to_session(f, old, EFFECT_CLOSE));
    assert_non_null(to_session(f, fresh, EFFECT_WISH));
    fixture_clear(f);
    core_event(f->core, &(struct core_event){.kind = CORE_HEARTBEAT, .session = old}, f->now, &f->out);
    assert_null(to_session(f, old, EFFECT_ACK));
    core_event(f->core, &(struct core_event){.kind = CORE_SESSION_CLOSED, .session = old}, f->now, &f->out);
    core_event(f->core, &(struct core_event){.kind = CORE_HEARTBEAT, .session = fresh}, f->now, &f->out);
    assert_non_null(to_session(f, fresh, EFFECT_ACK));
}

/* What the acknowledgement of a heartbeat says about the next ones. */
static int64_t beat_interval(struct core_fixture *f, uint64_t session)
{
    core_event(f->core, &(struct core_event){.kind = CORE_HEARTBEAT, .session = session}, f->now, &f->out);
    return to_session(f, session, EFFECT_ACK)->heartbeat_ms;
}

/* A cluster in which idle nodes send heartbeats less often: with 3 of them every 6 s, with 2 every 4 s. */
static void crowd_of_three(struct core_fixture *f, uint64_t sessions[3])
{
    static const char *const names[] = {"box1", "box2", "box3"};

    f->config.idle_beats = 30;
    fixture_restart(f);
    for (int i = 0; i < 3; i++)
        sessions[i] = fixture_node(f, names[i], 1);
}

static void nodes_without_workers_beat_less_often_in_a_crowd(void **state)
{
    struct core_fixture *f = *state;
    uint64_t sessions[3];

    f->config.idle_beats = 30;
    fixture_restart(f);
    assert_int_equal(beat_interval(f, fixture_node(f, "box0", 1)), 3000);
    crowd_of_three(f, sessions);
    assert_int_equal(beat_interval(f, sessions[0]), 6000);
    fixture_form(f, fixture_submit(f, "nodes: 1\n"));
    assert_int_equal(beat_interval(f, sessions[0]), 3000);
    assert_int_equal(beat_interval(f, sessions[1]), 4000);
    f->config.idle_beats = 1;
    fixture_restart(f);
    fixture_node(f, "box4", 1);
    assert_int_equal(beat_interval(f, fixture_node(f, "box5", 1)), 16000); /* never less often */
}

static void a_node_that_beats_less_often_may_be_silent_for_longer(void **state)
{
    struct core_fixture *f = *state;
    uint64_t sessions[3];

    crowd_of_three(f, sessions);
    assert_int_equal(beat_interval(f, sessions[0]), 6000);
    fixture_pass(f, 9100); /* the others were not told to */
    assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_ALIVE);
    fixture_pass(f, 1100);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_SUSPECT);
    fixture_pass(f, 3200);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_SUSPECT);
    fixture_pass(f, 200);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

static void a_wish_ends_the_patience_with_an_idle_node(void **state)
{
    struct core_fixture *f = *state;
    uint64_t sessions[3];

    crowd_of_three(f, sessions);
    beat_interval(f, sessions[0]);
    fixture_pass(f, 2000);
    const int64_t job = fixture_submit(f, "nodes: 1\n");
    assert_string_equal(core_rank(f->core, job, 1, 0)->node, "box1");
    fixture_pass(f, 8900);
    assert_int_not_equal(fixture_node_state(f, "box1"), NODE_LOST); /* it has 9 s from the wish on */
    fixture_pass(f, 200);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

static void a_message_of_a_node_with_workers_ends_the_patience(void **state)
{
    struct core_fixture *f = *state;
    uint64_t sessions[3];

    crowd_of_three(f, sessions);
    beat_interval(f, sessions[0]);
    fixture_pass(f, 4000);
    fixture_submit(f, "nodes: 1\n");
    core_event(f->core, &(struct core_event){.kind = CORE_ACTIVITY, .session = sessions[0]}, f->now, &f->out);
    fixture_pass(f, 8900);
    assert_int_not_equal(fixture_node_state(f, "box1"), NODE_LOST);
    fixture_pass(f, 200);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

static void a_closed_stream_ends_the_patience_with_an_idle_node(void **state)
{
    struct core_fixture *f = *state;
    uint64_t sessions[3];

    crowd_of_three(f, sessions);
    beat_interval(f, sessions[0]);
    fixture_pass(f, 1000);
    core_event(f->core, &(struct core_event){.kind = CORE_SESSION_CLOSED, .session = sessions[0]}, f->now,
               &f->out);
    fixture_pass(f, 8900);
    assert_int_not_equal(fixture_node_state(f, "box1"), NODE_LOST);
    fixture_pass(f, 200);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

static void a_shorter_interval_ends_the_patience_with_an_idle_node(void **state)
{
    struct core_fixture *f = *state;
    uint64_t sessions[3];

    crowd_of_three(f, sessions);
    for (int i = 0; i < 3; i++)
        beat_interval(f, sessions[i]);
    fixture_pass(f, 1);
    for (int i = 1; i < 3; i++)
        core_event(f->core, &(struct core_event){.kind = CORE_GOODBYE, .session = sessions[i]}, f->now,
                   &f->out);
    assert_int_equal(beat_interval(f, sessions[0]), 3000);
    assert_in_range(core_next_deadline(f->core), 1, f->now.boot_ms + 6750); /* then it is suspect */
}

static void a_second_instance_is_refused_while_workers_may_live(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "lease: 30s\nmax_restarts: 1\n");
    fixture_form(f, job);
    uint64_t other = fixture_hello(f, "box1", "other", 1, 0);
    assert_int_equal(to_session(f, other, EFFECT_REFUSE)->err.code, ERR_ALREADY_EXISTS);
    fixture_pass(f, 20000);
    other = fixture_hello(f, "box1", "other", 1, 0);
    assert_int_equal(to_session(f, other, EFFECT_REFUSE)->err.code, ERR_UNAVAILABLE);
    fixture_pass(f, 15000);
    other = fixture_hello(f, "box1", "other", 1, 0);
    assert_non_null(to_session(f, other, EFFECT_WELCOME));
}

static void other_clusters_and_newer_epochs_are_refused(void **state)
{
    struct core_fixture *f = *state;
    struct core_event event = {.kind = CORE_HELLO, .session = 900};

    event.hello = (struct core_hello){.node = "box9", .instance = "i", .cluster_id = "c2"};
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(to_session(f, 900, EFFECT_REFUSE)->err.code, ERR_FAILED_PRECONDITION);
    event.session = 901;
    event.hello.cluster_id = "c1";
    event.hello.epoch = 7;
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(to_session(f, 901, EFFECT_REFUSE)->err.code, ERR_FAILED_PRECONDITION);
    assert_null(core_node(f->core, "box9"));
}

static void invalid_hellos_do_no_harm(void **state)
{
    struct core_fixture *f = *state;
    struct core_gpu twins[] = {{.uuid = (char *)"GPU-1", .healthy = true},
                               {.uuid = (char *)"GPU-1", .healthy = true},
                               {.uuid = NULL, .healthy = true}};
    struct core_event event = {.kind = CORE_HELLO, .session = 900};

    event.hello = (struct core_hello){.node = "box9", .instance = "i", .port_first = 1, .port_last = 70000};
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(to_session(f, 900, EFFECT_REFUSE)->err.code, ERR_INVALID_ARGUMENT);
    event.hello.port_last = 2;
    event.hello.node = "";
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(to_session(f, 900, EFFECT_REFUSE)->err.code, ERR_INVALID_ARGUMENT);
    event.hello.node = "box9";
    event.hello.gpus = twins;
    event.hello.gpu_count = 3;
    core_event(f->core, &event, f->now, &f->out);
    struct core_node_status status;
    struct err e;
    assert_int_equal(core_node_status(f->core, "box9", f->now, &status, &e), ERR_OK);
    assert_int_equal(status.gpu_count, 1);
    core_node_status_release(&status);
}

static void a_command_job_moves_only_after_the_lease(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 3\n");
    fixture_form(f, job);
    fixture_node(f, "box2", 1);
    fixture_pass_beating(f, 50000, "box2");
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_string_equal(fixture_waits(f, job),
                        "waits until rank 0 of generation 1 is known dead on box1: when its lease has run "
                        "out, or after `ddpctl forget box1`");
    fixture_pass_beating(f, 13000, "box2");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
}

static void a_train_job_moves_at_once_but_not_into_slots_that_may_be_held(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 3\n" TRAIN SNAPSHOTS);
    fixture_form(f, job);
    int64_t old = fixture_spawn(f, job, 0);
    fixture_node(f, "box2", 1);
    fixture_pass_beating(f, 12000, "box2");
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    fixture_form(f, job);
    assert_int_equal(fixture_commit(f, job, old, 1, 10, "d"), ERR_ABORTED); /* fenced */
    int64_t next = fixture_submit(f, "");
    fixture_hello(f, "box1", "box1", 1, 0); /* the lost node is back, its worker still runs */
    struct spawn_fact alive = {.job = job, .spawn = old, .state = SPAWN_RUNNING};
    fixture_facts(f, "box1", &alive, 1);
    assert_int_equal(fixture_job(f, next), JOB_QUEUED);
    alive.state = SPAWN_EXITED;
    fixture_facts(f, "box1", &alive, 1);
    assert_int_equal(fixture_job(f, next), JOB_STARTING);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* A user who cancels wants an answer: it does not come only after the lease, minutes later. */
static void a_cancelled_job_does_not_wait_for_a_lost_node(void **state)
{
    struct core_fixture *f = *state;

    for (int kill = 0; kill < 2; kill++) {
        fixture_node(f, "box1", 1);
        int64_t job = fixture_submit(f, TRAIN);
        fixture_form(f, job);
        fixture_cancel(f, job, kill);
        assert_int_equal(fixture_job(f, job), JOB_STOPPING);
        fixture_pass(f, 12000);
        assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
        assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
        fixture_pass(f, 1000000); /* its lease is over */
    }
}

static void a_draining_generation_does_not_wait_for_a_lost_node(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, "nodes: 2\n" TRAIN "  snapshot: {dir: /out, every: 10}\n");
    fixture_form(f, job);
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    fixture_all_obey(f, "box1");
    assert_int_equal(core_generation(f->core, job, 1)->state, GENERATION_DRAINING);
    fixture_pass_beating(f, 12000, "box1");
    assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST);
    assert_int_not_equal(core_generation(f->core, job, 1)->state, GENERATION_DRAINING);
}

static void an_elastic_job_continues_on_fewer_nodes(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, "nodes: \"1:2\"\nmax_restarts: 3\n" TRAIN SNAPSHOTS);
    fixture_form(f, job);
    fixture_pass_beating(f, 10000, "box2");
    fixture_all_obey(f, "box2");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->world_size, 1);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1); /* one loss, counted once */
}

static void a_fixed_job_waits_for_its_node(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, "nodes: 2\nmax_restarts: 3\n" TRAIN SNAPSHOTS);
    fixture_form(f, job);
    fixture_pass_beating(f, 10000, "box2");
    fixture_all_obey(f, "box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_string_equal(fixture_waits(f, job),
                        "waits for 2 nodes with 1 slot each: the cluster has 1, 1 more is lost or drained");
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void absence_counts_only_in_answers_to_the_wish(void **state)
{
    struct core_fixture *f = *state;
    struct core_event early = {.kind = CORE_FACTS, .session = fixture_node(f, "box1", 1)};
    struct core_wish wish;
    struct err e;

    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    early.facts.epoch = wish.epoch;
    early.facts.revision = wish.revision;
    core_wish_release(&wish);
    int64_t job = fixture_submit(f, "max_restarts: 3\n");
    core_event(f->core, &early, f->now, &f->out); /* sent before the wish came */
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    early.session = f->handles;
    early.facts.revision = 1000; /* of the former epoch */
    core_event(f->core, &early, f->now, &f->out);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    fixture_facts(f, "box1", NULL, 0);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_true(fixture_said(f, "rank 0 on box1 ended, and its exit code is unknown"));
}

static void after_a_coordinator_restart_leases_count_in_full(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 3\n");
    fixture_form(f, job);
    fixture_node(f, "box2", 1);
    fixture_pass_beating(f, 40000, "box2");
    fixture_restart(f);
    fixture_hello(f, "box2", "box2", 1, 0);
    fixture_facts(f, "box2", NULL, 0);
    fixture_pass_beating(f, 55000, "box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_pass_beating(f, 10000, "box2");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void a_coordinator_restart_affects_no_worker(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "procs_per_node: 2\nmax_restarts: 0\n" TRAIN SNAPSHOTS);
    fixture_form(f, job);
    fixture_restart(f);
    fixture_pass(f, 20000); /* agents may need a while to find us again */
    fixture_hello(f, "box1", "box1", 2, 0);
    fixture_all_run(f, "box1");
    fixture_pass_beating(f, 60000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_exit(f, job, 0, 0, 0);
    fixture_exit(f, job, 1, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
}

static void a_stalled_coordinator_loses_no_node(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_pass_beating(f, 3000, "box1");
    f->now.boot_ms += 600000; /* suspended: messages of the nodes wait unread */
    core_tick(f->core, f->now, &f->out);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_SUSPECT);
    fixture_pass_beating(f, 3000, "box1");
    assert_int_equal(fixture_node_state(f, "box1"), NODE_ALIVE);
}

static void say_deaf(struct core_fixture *f, int64_t ms, bool outside)
{
    const struct core_event event = {.kind = CORE_DEAF, .deaf = {.ms = ms, .outside = outside}};

    core_event(f->core, &event, f->now, &f->out);
}

/* Time passes in which nothing is received, and the core is told before each tick, as the service does. */
static void pass_deaf(struct core_fixture *f, int64_t ms, int64_t share, bool outside)
{
    for (int64_t i = 0; i < ms; i += 500) {
        f->now.boot_ms += 500;
        say_deaf(f, 500 * share / 100, outside);
        core_tick(f->core, f->now, &f->out);
    }
}

static void deaf_time_does_not_count_as_silence(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_pass_beating(f, 3000, "box1");
    pass_deaf(f, 600000, 100, false);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_ALIVE);
    fixture_pass(f, 29000); /* as after a start of the coordinator */
    assert_int_not_equal(fixture_node_state(f, "box1"), NODE_LOST);
    fixture_pass(f, 1100);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

/* Its agent may have hung up since its last heartbeat, and cannot connect while the port is full. */
static void an_idle_node_with_a_new_worker_may_be_kept_out_by_a_full_port(void **state)
{
    struct core_fixture *f = *state;
    uint64_t sessions[3];

    crowd_of_three(f, sessions);
    beat_interval(f, sessions[0]);
    fixture_pass(f, 7000);
    fixture_submit(f, "nodes: 1\n");
    say_deaf(f, 1000, true);
    fixture_pass(f, 29900);
    assert_int_not_equal(fixture_node_state(f, "box1"), NODE_LOST);
    fixture_pass(f, 200);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

static void half_deaf_time_counts_half(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    pass_deaf(f, 4000, 50, false); /* 250 ms each */
    fixture_pass_beating(f, 10, "box1");
    pass_deaf(f, 17000, 50, false);
    assert_int_not_equal(fixture_node_state(f, "box1"), NODE_LOST);
    pass_deaf(f, 2000, 50, false);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

static void a_node_that_cannot_connect_is_not_lost(void **state)
{
    struct core_fixture *f = *state;
    struct core_event closed = {.kind = CORE_SESSION_CLOSED, .session = fixture_node(f, "box1", 1)};

    fixture_node(f, "box2", 1);
    core_event(f->core, &closed, f->now, &f->out);
    for (int i = 0; i < 60; i++) { /* box2 is heard all the while */
        fixture_pass_beating(f, 1000, "box2");
        say_deaf(f, 1000, true);
    }
    assert_int_not_equal(fixture_node_state(f, "box1"), NODE_LOST);
    fixture_pass(f, 9100);
    assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST); /* a silence of its own */
    fixture_pass(f, 21000);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

/* Strangers can fill the port. That must not keep the job of a dead node from continuing elsewhere. */
static void a_port_full_of_strangers_excuses_silence_only_so_long(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_pass_beating(f, 3000, "box1");
    pass_deaf(f, 240000, 100, true);
    assert_int_not_equal(fixture_node_state(f, "box1"), NODE_LOST);
    pass_deaf(f, 100000, 100, true);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LOST);
}

static void wall_clock_jumps_change_nothing(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "time_limit: 1h\n");
    fixture_form(f, job);
    f->now.wall_ms += 86400000;
    fixture_pass_beating(f, 10000, "box1");
    f->now.wall_ms -= 2 * 86400000LL;
    fixture_pass_beating(f, 10000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(fixture_node_state(f, "box1"), NODE_ALIVE);
}

static void a_goodbye_does_not_count_as_a_restart(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 0\n" TRAIN SNAPSHOTS);
    fixture_form(f, job);
    fixture_node(f, "box2", 1);
    struct core_event bye = {.kind = CORE_GOODBYE, .session = f->handles - 1};
    for (uint64_t session = 1; session <= f->handles; session++) {
        bye.session = session;
        if (fixture_node_state(f, "box1") == NODE_ALIVE && session < f->handles)
            core_event(f->core, &bye, f->now, &f->out);
    }
    assert_int_equal(fixture_node_state(f, "box1"), NODE_LEFT);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
}

static void exit_records_stay_in_the_wish_until_committed(void **state)
{
    struct core_fixture *f = *state;
    struct core_wish wish;
    struct err e;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 0\n");
    fixture_form(f, job);
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].spawn_count, 1);
    core_wish_release(&wish);
    fixture_exit(f, job, 0, 1, 0);
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.group_count, 0);
    core_wish_release(&wish);
    for (size_t i = 0; i < f->kept.spawn_count; i++)
        assert_true(f->kept.spawns[i].exit_known);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_node_is_alive_once_its_facts_have_answered),
        TEST(silence_makes_a_node_suspect_and_then_lost),
        TEST(a_closed_stream_does_not_lose_the_node),
        TEST(the_newest_session_wins),
        TEST(nodes_without_workers_beat_less_often_in_a_crowd),
        TEST(a_node_that_beats_less_often_may_be_silent_for_longer),
        TEST(a_wish_ends_the_patience_with_an_idle_node),
        TEST(a_message_of_a_node_with_workers_ends_the_patience),
        TEST(a_closed_stream_ends_the_patience_with_an_idle_node),
        TEST(a_shorter_interval_ends_the_patience_with_an_idle_node),
        TEST(an_idle_node_with_a_new_worker_may_be_kept_out_by_a_full_port),
        TEST(a_second_instance_is_refused_while_workers_may_live),
        TEST(other_clusters_and_newer_epochs_are_refused),
        TEST(invalid_hellos_do_no_harm),
        TEST(a_command_job_moves_only_after_the_lease),
        TEST(a_train_job_moves_at_once_but_not_into_slots_that_may_be_held),
        TEST(a_cancelled_job_does_not_wait_for_a_lost_node),
        TEST(a_draining_generation_does_not_wait_for_a_lost_node),
        TEST(an_elastic_job_continues_on_fewer_nodes),
        TEST(a_fixed_job_waits_for_its_node),
        TEST(absence_counts_only_in_answers_to_the_wish),
        TEST(after_a_coordinator_restart_leases_count_in_full),
        TEST(a_coordinator_restart_affects_no_worker),
        TEST(a_stalled_coordinator_loses_no_node),
        TEST(deaf_time_does_not_count_as_silence),
        TEST(half_deaf_time_counts_half),
        TEST(a_node_that_cannot_connect_is_not_lost),
        TEST(a_port_full_of_strangers_excuses_silence_only_so_long),
        TEST(wall_clock_jumps_change_nothing),
        TEST(a_goodbye_does_not_count_as_a_restart),
        TEST(exit_records_stay_in_the_wish_until_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
