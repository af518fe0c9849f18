#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/coordinator/core_test.h"

/* What is told apart here; how cards of many nodes come together is the simulation's. */

static const struct core_effect *said_to(const struct bench *b, uint64_t session, enum core_effect_kind kind)
{
    for (size_t i = b->out.effect_count; i-- > 0;)
        if (b->out.effects[i].session == session && b->out.effects[i].kind == kind)
            return &b->out.effects[i];
    return NULL;
}

static void hello(struct bench *b, uint64_t session, const struct records *card)
{
    struct core_event event = {.kind = CORE_HELLO, .session = session};
    struct core_card_head head = {card->jobs[0].id, INT64_MAX / 2};

    event.hello = (struct core_hello){.node = "box1",
                                      .instance = "box1",
                                      .cluster_id = "c1",
                                      .epoch = b->config.epoch,
                                      .address = "10.0.0.1",
                                      .cpu_slots = 4,
                                      .keeps_cards = true,
                                      .heads = &head,
                                      .head_count = 1,
                                      .cards = card,
                                      .card_count = 1};
    core_event(b->core, &event, b->now, &b->out);
}

static void rename_job(struct records *card, int64_t id, const char *request)
{
    card->jobs[0].id = id;
    free(card->jobs[0].request_id);
    card->jobs[0].request_id = xstrdup(request);
    for (size_t i = 0; i < card->generation_count; i++)
        card->generations[i].job = id;
    for (size_t i = 0; i < card->rank_count; i++)
        card->ranks[i].job = id;
    for (size_t i = 0; i < card->spawn_count; i++)
        card->spawns[i].job = id;
}

static void a_job_that_is_known_to_a_node_alone_goes_on(void **state)
{
    struct bench *b = *state;
    CLEANUP(records_release) struct records card = {0};

    bench_node(b, "box1", 4);
    bench_form(b, bench_submit(b, "procs_per_node: 2\n"));
    assert_true(core_card(b->core, 1, &card));
    rename_job(&card, 500, "of the lost time");
    assert_true(core_wants_card(b->core, "box1", &(struct core_card_head){500, 1}));
    hello(b, 901, &card);
    assert_non_null(said_to(b, 901, EFFECT_WELCOME));
    assert_int_equal(bench_job(b, 500), JOB_RUNNING);
    assert_int_equal(core_job(b->core, 500)->restarts_used, 0);
    assert_int_equal(bench_stop(b, 500, 1), CORE_STOP_NONE);
    bench_restart(b);
    assert_true(bench_said(b, "box1 knew more than the restored records"));
    assert_int_equal(bench_job(b, 500), JOB_RUNNING);
    assert_true(bench_submit(b, "") > 500);
}

static void one_number_and_one_request_are_one_job(void **state)
{
    static const struct {
        int64_t id;
        const char *request; /* NULL: as the job here */
    } others[] = {{1, "another"}, {500, NULL}};
    struct bench *b = *state;

    bench_node(b, "box1", 4);
    bench_submit(b, "");
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        CLEANUP(records_release) struct records card = {0};
        CLEANUP(free_text) char *own = xstrdup(core_job(b->core, 1)->request_id);
        assert_true(core_card(b->core, 1, &card));
        rename_job(&card, others[i].id, others[i].request ? others[i].request : own);
        hello(b, 901 + i, &card);
        assert_int_equal(said_to(b, 901 + i, EFFECT_REFUSE)->err.code, ERR_FAILED_PRECONDITION);
        assert_non_null(strstr(said_to(b, 901 + i, EFFECT_REFUSE)->err.msg, "--rejoin"));
    }
    assert_null(core_job(b->core, 500));
}

static void a_card_of_a_forgotten_job_is_dropped(void **state)
{
    struct bench *b = *state;
    struct core_event event = {.kind = CORE_HELLO, .session = 901};
    struct core_card_head head = {1, 7};
    struct core_wish wish;
    struct err e;

    bench_submit(b, "");
    bench_cancel(b, 1, true);
    bench_pass(b, b->config.retain_jobs_ms + 120000);
    assert_null(core_job(b->core, 1));
    assert_false(core_wants_card(b->core, "box1", &head));
    event.hello = (struct core_hello){.node = "box1",
                                      .instance = "i",
                                      .cluster_id = "c1",
                                      .cpu_slots = 4,
                                      .keeps_cards = true,
                                      .heads = &head,
                                      .head_count = 1};
    core_event(b->core, &event, b->now, &b->out);
    assert_ok(core_wish(b->core, "box1", &wish, &e), &e);
    assert_int_equal(wish.card_count, 1);
    assert_true(wish.cards[0].drop);
    core_wish_release(&wish);
}

/* Each start would bring it back otherwise, and leave another gap in the numbers. */
static void a_job_of_the_lost_time_is_removed_once(void **state)
{
    struct bench *b = *state;
    struct core_card_head head = {500, INT64_MAX / 2};
    CLEANUP(records_release) struct records card = {0};

    bench_node(b, "box1", 4);
    bench_form(b, bench_submit(b, ""));
    bench_exit(b, 1, 0, 0, 0);
    assert_true(core_card(b->core, 1, &card));
    rename_job(&card, 500, "of the lost time");
    hello(b, 901, &card);
    assert_int_equal(bench_job(b, 500), JOB_SUCCEEDED);
    bench_pass_beating(b, b->config.retain_jobs_ms + 120000, "box1");
    assert_null(core_job(b->core, 500));
    assert_false(core_wants_card(b->core, "box1", &head));
    bench_restart(b);
    assert_false(core_wants_card(b->core, "box1", &head));
    head.job = 499; /* another number of the gap: its job may still come */
    assert_true(core_wants_card(b->core, "box1", &head));
}

static void hello_of_epoch(struct bench *b, uint64_t session, int64_t epoch)
{
    struct core_event event = {.kind = CORE_HELLO, .session = session};

    event.hello = (struct core_hello){.node = "box1",
                                      .instance = "box1",
                                      .cluster_id = "c1",
                                      .epoch = epoch,
                                      .cpu_slots = 4,
                                      .keeps_cards = true};
    core_event(b->core, &event, b->now, &b->out);
}

/* An epoch only grows, so a node must not be able to raise it to its maximum. */
static void an_epoch_that_no_restore_explains_is_refused(void **state)
{
    static const int64_t made_up[] = {INT64_MAX, INT64_MAX - 1, 2000000000, -1};
    struct bench *b = *state;

    bench_node(b, "box1", 4);
    for (size_t i = 0; i < ARRAY_LEN(made_up); i++) {
        hello_of_epoch(b, 901 + i, made_up[i]);
        assert_non_null(said_to(b, 901 + i, EFFECT_REFUSE));
        assert_non_null(strstr(said_to(b, 901 + i, EFFECT_REFUSE)->err.msg, "--rejoin"));
        assert_null(said_to(b, 901 + i, EFFECT_WELCOME));
    }
    hello_of_epoch(b, 950, b->config.epoch + 1000);
    assert_non_null(said_to(b, 950, EFFECT_WELCOME));
}

static void learn(struct bench *b)
{
    struct core_event event = {.kind = CORE_HELLO, .session = 950};

    event.hello = (struct core_hello){.node = "box2",
                                      .instance = "box2",
                                      .cluster_id = "c1",
                                      .epoch = b->config.epoch + 1,
                                      .cpu_slots = 1,
                                      .keeps_cards = true};
    core_event(b->core, &event, b->now, &b->out);
    assert_non_null(said_to(b, 950, EFFECT_WELCOME));
}

/* Until then a node may come that runs a later generation of it: neither the user's word nor a short pause
 * after a failure places it before. */
static void assert_held(struct bench *b, int64_t job)
{
    int64_t generation = core_job(b->core, job)->generation;

    bench_pass_beating(b, 30000, "box1");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    assert_int_equal(core_job(b->core, job)->generation, generation);
    assert_non_null(strstr(bench_waits(b, job), "the coordinator's records were restored"));
    bench_pass_beating(b, 60000, "box1");
    assert_int_equal(core_job(b->core, job)->generation, generation + 1);
}

static void a_restart_does_not_end_the_wait_for_nodes(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "");
    bench_all_run(b, "box1");
    learn(b);
    assert_int_equal(bench_restart_job(b, job), ERR_OK);
    bench_all_obey(b, "box1");
    assert_held(b, job);
}

static void a_failure_does_not_end_the_wait_for_nodes(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "max_restarts: 9\n");
    bench_all_run(b, "box1");
    bench_exit(b, job, 0, 1, 0);
    bench_all_run(b, "box1");
    learn(b);
    bench_exit(b, job, 0, 1, 0);
    assert_held(b, job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_job_that_is_known_to_a_node_alone_goes_on, bench_setup,
                                        bench_teardown),
        cmocka_unit_test_setup_teardown(one_number_and_one_request_are_one_job, bench_setup, bench_teardown),
        cmocka_unit_test_setup_teardown(a_card_of_a_forgotten_job_is_dropped, bench_setup, bench_teardown),
        cmocka_unit_test_setup_teardown(a_job_of_the_lost_time_is_removed_once, bench_setup, bench_teardown),
        cmocka_unit_test_setup_teardown(an_epoch_that_no_restore_explains_is_refused, bench_setup,
                                        bench_teardown),
        cmocka_unit_test_setup_teardown(a_restart_does_not_end_the_wait_for_nodes, bench_setup,
                                        bench_teardown),
        cmocka_unit_test_setup_teardown(a_failure_does_not_end_the_wait_for_nodes, bench_setup,
                                        bench_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
