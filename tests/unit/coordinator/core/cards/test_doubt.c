/* Workers of restored records: they may have ended since the backup, so their nodes do not start them. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define BOTH "box1 box2"
#define LEARN_MS 31000

static void restart_restored(struct core_fixture *f)
{
    f->kept.age = RECORDS_RESTORED;
    fixture_restart(f);
}

static void say_hello(struct core_fixture *f)
{
    fixture_hello(f, "box1", "box1", 2, 0);
    fixture_hello(f, "box2", "box2", 2, 0);
}

/* Whether the node may start the spawn. */
static bool may_start(const struct core_fixture *f, const char *node, int64_t job, int64_t spawn)
{
    struct core_wish wish;
    struct err e = {0};
    int found = -1;

    assert_ok(core_wish(f->core, node, &wish, &e), &e);
    for (size_t i = 0; i < wish.group_count; i++)
        for (size_t k = 0; k < wish.groups[i].spawn_count; k++)
            if (wish.groups[i].job == job && wish.groups[i].spawns[k].spawn == spawn)
                found =
                    wish.groups[i].spawns[k].stop == CORE_STOP_NONE && !wish.groups[i].spawns[k].keep_only;
    core_wish_release(&wish);
    assert_int_not_equal(found, -1); /* a worker that is not in the wish is killed */
    return found;
}

static int64_t job_on_both(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    return fixture_submit(f, file);
}

static void a_new_worker_is_started(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_on_both(f, "nodes: 2\nprocs_per_node: 1\n");

    assert_true(may_start(f, "box1", job, 1));
    fixture_restart(f);
    assert_true(may_start(f, "box1", job, 1));
}

/* box1 has started its worker before the restore; box2 has not, or has dropped its end. */
static void a_worker_of_restored_records_runs_on_and_is_not_started(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_on_both(f, "nodes: 2\nprocs_per_node: 1\nmax_restarts: 0\n");

    restart_restored(f);
    say_hello(f);
    assert_false(may_start(f, "box1", job, 1));
    assert_false(may_start(f, "box2", job, 2));
    fixture_all_run(f, "box1");
    assert_true(may_start(f, "box1", job, 1));
    fixture_facts(f, "box2", NULL, 0);
    assert_false(may_start(f, "box2", job, 2));
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_FORMING);
    fixture_pass_beating(f, LEARN_MS, BOTH);
    fixture_all_run(f, "box1");
    fixture_facts(f, "box2", NULL, 0);
    assert_int_equal(core_generation(f->core, job, 1)->state, GENERATION_FAILED);
    assert_false(core_generation(f->core, job, 1)->charged);
    assert_true(fixture_said(f, "the restored records have rank 1 on box2, but the node does not have it"));
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_all_obey(f, "box1");
    fixture_pass_beating(f, 60000, BOTH);
    assert_int_equal(core_job(f->core, job)->generation, 2);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_true(may_start(f, "box2", job, fixture_spawn(f, job, 1)));
}

/* When the time to learn is over, box2 has not reported its workers. Then the coordinator restarts. */
static void a_restart_does_not_end_the_doubt(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_on_both(f, "nodes: 2\nprocs_per_node: 1\n");

    restart_restored(f);
    say_hello(f);
    fixture_all_run(f, "box1");
    fixture_pass_beating(f, LEARN_MS, BOTH);
    assert_int_equal(f->kept.age, RECORDS_LEARNING);
    fixture_restart(f);
    say_hello(f);
    assert_false(may_start(f, "box2", job, 2));
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fixture_pass_beating(f, LEARN_MS, BOTH);
    assert_int_equal(f->kept.age, RECORDS_NEW);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* The worker was told to stop and has ended since the backup. Nobody doubts it once the coordinator has learned, because it would not
 * be started in any case. But it keeps its slot until its node leaves it out, also over a restart. */
static void a_stopped_worker_of_restored_records_has_its_slot_until_its_node_reports(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    const int64_t job = fixture_submit(f, "");
    fixture_all_run(f, "box1");
    fixture_cancel(f, job, true);
    restart_restored(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_pass_beating(f, LEARN_MS, "box1");
    assert_int_equal(f->kept.age, RECORDS_NEW);
    fixture_restart(f);
    const int64_t other = fixture_submit(f, "");
    fixture_hello(f, "box1", "box1", 1, 0);
    assert_false(may_start(f, "box1", job, 1));
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    fixture_facts(f, "box1", NULL, 0);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
}

/* The agent still has a wish from before the restore. It calls the spawns of that wish starting, before it starts them. */
static void the_plans_of_an_older_wish_prove_nothing(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_on_both(f, "nodes: 2\nprocs_per_node: 1\n");
    struct spawn_fact fact = {.job = job, .spawn = 1, .state = SPAWN_STARTING};
    struct core_event event = {.kind = CORE_FACTS};

    restart_restored(f);
    event.session = fixture_hello(f, "box1", "box1", 2, 0);
    event.facts.facts = &fact;
    event.facts.count = 1;
    core_event(f->core, &event, f->now, &f->out);
    assert_false(may_start(f, "box1", job, 1));
    fact.state = SPAWN_RUNNING;
    core_event(f->core, &event, f->now, &f->out);
    assert_true(may_start(f, "box1", job, 1));
}

/* A generation that forms gets its time after the coordinator has learned. */
static void learning_is_no_time_to_join_in(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_on_both(f, "nodes: 2\nprocs_per_node: 1\njoin_timeout: 20s\n" TRAIN);

    restart_restored(f);
    say_hello(f);
    fixture_both_obey(f);
    fixture_pass_beating(f, LEARN_MS, BOTH);
    assert_int_equal(core_generation(f->core, job, 1)->state, GENERATION_FORMING);
    fixture_pass_beating(f, 20000, BOTH);
    assert_int_equal(core_generation(f->core, job, 1)->state, GENERATION_FAILED);
}

static void hello_with_card(struct core_fixture *f, const struct records *card)
{
    struct core_event event = {.kind = CORE_HELLO, .session = ++f->handles};
    const struct core_card_head head = {card->jobs[0].id, INT64_MAX / 2};

    event.hello = (struct core_hello){.node = "box3",
                                      .instance = "box3",
                                      .cluster_id = "c1",
                                      .epoch = f->config.epoch,
                                      .address = "10.0.0.3",
                                      .keeps_cards = true,
                                      .heads = &head,
                                      .head_count = 1,
                                      .cards = card,
                                      .card_count = 1};
    core_event(f->core, &event, f->now, &f->out);
}

static const struct spawn *find_spawn(const struct core_fixture *f, int64_t job, int64_t spawn)
{
    return job_find_spawn(core_find_job(f->core, job), spawn);
}

/* box1 says once that its worker is silent. The job is then made anew from box3's card. */
static void a_card_does_not_hide_a_silent_worker(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records card = {0};
    const int64_t job = job_on_both(f, "nodes: 2\nprocs_per_node: 1\n");
    const struct core_activity silent = {
        .job = job, .spawn = 1, .idle_ms = -1, .silent_ms = 100, .cpu_permille = 900};
    struct core_event event = {.kind = CORE_ACTIVITY, .activity = {.spawns = &silent, .count = 1}};

    assert_true(core_card(f->core, job, &card));
    card.generations[0].state = GENERATION_RUNNING;
    card.jobs[0].state = JOB_RUNNING;
    restart_restored(f);
    event.session = fixture_hello(f, "box1", "box1", 2, 0);
    fixture_all_run(f, "box1");
    core_event(f->core, &event, f->now, &f->out);
    const int64_t since = find_spawn(f, job, 1)->silent_since;
    assert_int_not_equal(since, 0);
    hello_with_card(f, &card);
    assert_int_equal(find_spawn(f, job, 1)->silent_since, since);
    assert_int_equal(find_spawn(f, job, 1)->cpu_permille, 900);
}

/* box3 has had workers of the job, and keeps a card of it. */
static void a_card_brings_no_doubt_about_workers_that_nodes_have_shown(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records card = {0};
    const int64_t job = job_on_both(f, "nodes: 2\nprocs_per_node: 1\n");

    assert_true(core_card(f->core, job, &card));
    card.generations[0].state = GENERATION_RUNNING;
    card.jobs[0].state = JOB_RUNNING;
    restart_restored(f);
    say_hello(f);
    fixture_all_run(f, "box1");
    hello_with_card(f, &card);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_true(may_start(f, "box1", job, 1));
    assert_false(may_start(f, "box2", job, 2));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_worker_is_started),
        TEST(a_worker_of_restored_records_runs_on_and_is_not_started),
        TEST(a_restart_does_not_end_the_doubt),
        TEST(a_stopped_worker_of_restored_records_has_its_slot_until_its_node_reports),
        TEST(the_plans_of_an_older_wish_prove_nothing),
        TEST(learning_is_no_time_to_join_in),
        TEST(a_card_does_not_hide_a_silent_worker),
        TEST(a_card_brings_no_doubt_about_workers_that_nodes_have_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
