#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/cards/card.h"
#include "tests/unit/coordinator/core/core_fixture.h"
#include "tests/unit/coordinator/core/placement/staying_job.h"

/* Single decisions about cards. The simulation tests how cards of many nodes are merged. */

static const struct core_effect *said_to(const struct core_fixture *f, uint64_t session,
                                         enum core_effect_kind kind)
{
    for (size_t i = f->out.effect_count; i-- > 0;)
        if (f->out.effects[i].session == session && f->out.effects[i].kind == kind)
            return &f->out.effects[i];
    return NULL;
}

static void hello_with_card(struct core_fixture *f, uint64_t session, const struct records *card)
{
    struct core_event event = {.kind = CORE_HELLO, .session = session};
    struct core_card_head head = {card->jobs[0].id, INT64_MAX / 2};

    event.hello = (struct core_hello){.node = "box1",
                                      .instance = "box1",
                                      .cluster_id = "c1",
                                      .epoch = f->config.epoch,
                                      .address = "10.0.0.1",
                                      .cpu_slots = 4,
                                      .keeps_cards = true,
                                      .heads = &head,
                                      .head_count = 1,
                                      .cards = card,
                                      .card_count = 1};
    core_event(f->core, &event, f->now, &f->out);
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

static void a_job_that_only_a_node_knows_continues(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records card = {0};

    fixture_node(f, "box1", 4);
    fixture_form(f, fixture_submit(f, "procs_per_node: 2\n"));
    assert_true(core_card(f->core, 1, &card));
    rename_job(&card, 500, "of the lost time");
    assert_true(core_wants_card(f->core, "box1", &(struct core_card_head){500, 1}));
    hello_with_card(f, 901, &card);
    assert_non_null(said_to(f, 901, EFFECT_WELCOME));
    assert_int_equal(fixture_job(f, 500), JOB_RUNNING);
    assert_int_equal(core_job(f->core, 500)->restarts_used, 0);
    assert_int_equal(fixture_stop(f, 500, 1), CORE_STOP_NONE);
    fixture_restart(f);
    assert_true(fixture_said(f, "box1 has newer records than those that were restored"));
    assert_int_equal(fixture_job(f, 500), JOB_RUNNING);
    assert_true(fixture_submit(f, "") > 500);
}

/* The restored records have the job in the queue, and a user cancels it there before the node is back. */
static void a_success_counts_more_than_a_cancel_in_the_queue(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records card = {0};
    int64_t queued;

    fixture_node(f, "box1", 4);
    fixture_form(f, fixture_submit(f, ""));
    fixture_exit(f, 1, 0, 0, 0);
    assert_true(core_card(f->core, 1, &card));
    queued = fixture_submit(f, "nodes: 3\n"); /* more than there are */
    fixture_cancel(f, queued, true);
    rename_job(&card, queued, core_job(f->core, queued)->request_id);
    card.jobs[0].next_spawn = 100;
    hello_with_card(f, 901, &card);
    assert_int_equal(fixture_job(f, queued), JOB_SUCCEEDED);
    assert_int_equal(core_job(f->core, queued)->generation, 1);
}

static void a_number_or_request_of_another_job_is_refused(void **state)
{
    static const struct {
        int64_t id;
        const char *request; /* NULL: that of the job in the records */
    } others[] = {{1, "another"}, {500, NULL}};
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_submit(f, "");
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        CLEANUP(records_release) struct records card = {0};
        CLEANUP(free_text) char *own = xstrdup(core_job(f->core, 1)->request_id);
        assert_true(core_card(f->core, 1, &card));
        rename_job(&card, others[i].id, others[i].request ? others[i].request : own);
        hello_with_card(f, 901 + i, &card);
        assert_int_equal(said_to(f, 901 + i, EFFECT_REFUSE)->err.code, ERR_FAILED_PRECONDITION);
        assert_non_null(strstr(said_to(f, 901 + i, EFFECT_REFUSE)->err.msg, "--rejoin"));
    }
    assert_null(core_job(f->core, 500));
}

static void a_card_of_a_removed_job_is_dropped(void **state)
{
    struct core_fixture *f = *state;
    struct core_event event = {.kind = CORE_HELLO, .session = 901};
    struct core_card_head head = {1, 7};
    struct core_wish wish;
    struct err e;

    fixture_submit(f, "");
    fixture_cancel(f, 1, true);
    fixture_pass(f, f->config.retain_jobs_ms + 120000);
    assert_null(core_job(f->core, 1));
    assert_false(core_wants_card(f->core, "box1", &head));
    event.hello = (struct core_hello){.node = "box1",
                                      .instance = "i",
                                      .cluster_id = "c1",
                                      .cpu_slots = 4,
                                      .keeps_cards = true,
                                      .heads = &head,
                                      .head_count = 1};
    core_event(f->core, &event, f->now, &f->out);
    assert_ok(core_wish(f->core, "box1", &wish, &e), &e);
    assert_int_equal(wish.card_count, 1);
    assert_true(wish.cards[0].drop);
    core_wish_release(&wish);
}

/* Otherwise each start would bring the job back and leave another gap in the numbers. */
static void a_job_from_the_gap_is_removed_only_once(void **state)
{
    struct core_fixture *f = *state;
    struct core_card_head head = {500, INT64_MAX / 2};
    CLEANUP(records_release) struct records card = {0};

    fixture_node(f, "box1", 4);
    fixture_form(f, fixture_submit(f, ""));
    fixture_exit(f, 1, 0, 0, 0);
    assert_true(core_card(f->core, 1, &card));
    rename_job(&card, 500, "of the lost time");
    hello_with_card(f, 901, &card);
    assert_int_equal(fixture_job(f, 500), JOB_SUCCEEDED);
    fixture_pass_beating(f, f->config.retain_jobs_ms + 120000, "box1");
    assert_null(core_job(f->core, 500));
    assert_false(core_wants_card(f->core, "box1", &head));
    fixture_restart(f);
    assert_false(core_wants_card(f->core, "box1", &head));
    head.job = 499; /* another number of the gap: its job may still come */
    assert_true(core_wants_card(f->core, "box1", &head));
}

static void hello_of_epoch(struct core_fixture *f, uint64_t session, int64_t epoch)
{
    struct core_event event = {.kind = CORE_HELLO, .session = session};

    event.hello = (struct core_hello){.node = "box1",
                                      .instance = "box1",
                                      .cluster_id = "c1",
                                      .epoch = epoch,
                                      .cpu_slots = 4,
                                      .keeps_cards = true};
    core_event(f->core, &event, f->now, &f->out);
}

/* An epoch only grows, so no node may raise it to its maximum. */
static void an_impossible_epoch_is_refused(void **state)
{
    static const int64_t made_up[] = {INT64_MAX, INT64_MAX - 1, 2000000000, -1};
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    for (size_t i = 0; i < ARRAY_LEN(made_up); i++) {
        hello_of_epoch(f, 901 + i, made_up[i]);
        assert_non_null(said_to(f, 901 + i, EFFECT_REFUSE));
        assert_non_null(strstr(said_to(f, 901 + i, EFFECT_REFUSE)->err.msg, "--rejoin"));
        assert_null(said_to(f, 901 + i, EFFECT_WELCOME));
    }
    hello_of_epoch(f, 950, f->config.epoch + 1000);
    assert_non_null(said_to(f, 950, EFFECT_WELCOME));
}

static void start_learning(struct core_fixture *f)
{
    struct core_event event = {.kind = CORE_HELLO, .session = 950};

    event.hello = (struct core_hello){.node = "box2",
                                      .instance = "box2",
                                      .cluster_id = "c1",
                                      .epoch = f->config.epoch + 1,
                                      .cpu_slots = 1,
                                      .keeps_cards = true};
    core_event(f->core, &event, f->now, &f->out);
    assert_non_null(said_to(f, 950, EFFECT_WELCOME));
}

/* Until then a node may come that runs a later generation of it: neither the user's word nor a short pause
 * after a failure places it before. */
static void assert_held(struct core_fixture *f, int64_t job)
{
    int64_t generation = core_job(f->core, job)->generation;

    fixture_pass_beating(f, 30000, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(core_job(f->core, job)->generation, generation);
    assert_non_null(strstr(fixture_waits(f, job), "the coordinator's records were restored"));
    fixture_pass_beating(f, 60000, "box1");
    assert_int_equal(core_job(f->core, job)->generation, generation + 1);
}

static void a_users_restart_does_not_end_the_wait_for_nodes(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "");
    fixture_all_run(f, "box1");
    start_learning(f);
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    fixture_all_obey(f, "box1");
    assert_held(f, job);
}

static void a_failure_does_not_end_the_wait_for_nodes(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "max_restarts: 9\n");
    fixture_all_run(f, "box1");
    fixture_exit(f, job, 0, 0, 9);
    fixture_all_run(f, "box1");
    start_learning(f);
    fixture_exit(f, job, 0, 0, 9);
    assert_held(f, job);
}

/* Other nodes have already told the restored records that the generation runs, and only this node's card, which was written
 * before, has the end of a worker. Without it the node would be told to start that worker again. */
static void a_card_that_knows_of_an_end_is_wanted_though_it_is_behind(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "");
    fixture_all_run(f, "box1");
    int64_t ours = card_progress(core_find_job(f->core, job), "box1");
    const int64_t starting = ours - ((int64_t)(JOB_RUNNING - JOB_STARTING) << 16);
    const struct core_card_head behind = {job, starting}, with_end = {job, starting + 1},
                                earlier = {job, ours - (1 << 24) + 1};
    assert_false(core_wants_card(f->core, "box1", &with_end));
    start_learning(f);
    assert_true(core_wants_card(f->core, "box1", &with_end));
    assert_false(core_wants_card(f->core, "box1", &behind));
    assert_false(core_wants_card(f->core, "box1", &earlier));
}

/* The end of a worker counts although its node is not known any more: otherwise the node's card of an ended job would be taken for
 * a sign of lost records when the node comes back. */
static void the_card_of_a_forgotten_node_is_not_newer(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "");
    fixture_form(f, job);
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
    const struct core_card_head head = {job, card_progress(core_find_job(f->core, job), "box1")};
    fixture_node(f, "box2", 1);
    fixture_pass_beating(f, 12000, "box2");
    fixture_operator(f, CORE_FORGET, "box1");
    assert_null(core_node(f->core, "box1"));
    assert_false(core_wants_card(f->core, "box1", &head));
}

/* Cards of a job at its revisions 1 and 2 differ from the restored records only by a tune or two. */
static void adopt_revisions(struct core_fixture *f, size_t first)
{
    struct records cards[2] = {0};

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, TRAIN "  snapshot: {dir: /out, every: 10}\n");
    fixture_form(f, job);
    for (size_t k = 0; k < ARRAY_LEN(cards); k++) {
        assert_true(core_card(f->core, job, &cards[k]));
        free(cards[k].jobs[0].job_file);
        cards[k].jobs[0].job_file =
            xasprintf("%s  log_every: %zu\n", core_job(f->core, job)->job_file, k + 1);
        cards[k].jobs[0].revision = (int64_t)k + 1;
        cards[k].jobs[0].revision_used = 1;
    }
    hello_with_card(f, 901, &cards[first]);
    hello_with_card(f, 902, &cards[1 - first]);
    assert_int_equal(core_job(f->core, job)->revision, 2);
    assert_int_equal(core_job(f->core, job)->revision_used, 1);
    assert_string_equal(core_job(f->core, job)->job_file, cards[1].jobs[0].job_file);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    for (size_t k = 0; k < ARRAY_LEN(cards); k++)
        records_release(&cards[k]);
}

/* One node tells that a worker has died in the first generation; another one, that it went on in the second. */
static void a_member_that_died_as_one_of_an_earlier_generation_is_replaced(void **state)
{
    struct core_fixture *f = *state;
    struct records cards[2] = {0};

    int64_t job = staying_job_of_four(f, FOUR SAVED);
    assert_true(core_card(f->core, job, &cards[0]));
    fixture_exit(f, job, 2, 0, 9);
    staying_job_rejoin(f, job, 20);
    assert_true(core_card(f->core, job, &cards[1]));
    for (size_t k = 0; k < ARRAY_LEN(cards); k++)
        rename_job(&cards[k], 500, "of the lost time");
    struct spawn_record *s = &cards[0].spawns[0];
    s->dead = s->revoked = s->exit_known = true;
    s->signal = 9;
    cards[0].generations[0].state = GENERATION_FAILED;
    cards[0].jobs[0].state = JOB_RECOVERING;
    hello_with_card(f, 901, &cards[0]);
    hello_with_card(f, 902, &cards[1]);
    assert_int_equal(core_job(f->core, 500)->generation, 2);
    assert_int_equal(core_generation(f->core, 500, 2)->state, GENERATION_FAILED);
    assert_int_equal(core_generation(f->core, 500, 2)->failed_spawn, s->spawn);
    assert_int_equal(fixture_job(f, 500), JOB_RECOVERING);
    for (size_t k = 0; k < ARRAY_LEN(cards); k++)
        records_release(&cards[k]);
}

static const struct generation_record *generation_of(const struct core_fixture *f, int64_t job)
{
    return core_generation(f->core, job, core_job(f->core, job)->generation);
}

/* The lost records had seen the generation fail; the restored ones have it running when the user kills the job. */
static void a_card_of_a_failed_generation_does_not_undo_a_kill(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records card = {0};

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, "procs_per_node: 2\n");
    fixture_form(f, job);
    assert_true(core_card(f->core, job, &card));
    card.generations[0].state = GENERATION_FAILED;
    card.jobs[0].state = JOB_RECOVERING;
    fixture_cancel(f, job, true);
    hello_with_card(f, 901, &card);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_KILL);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_exit(f, job, 0, 0, 9);
    fixture_exit(f, job, 1, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

/* The other way: the card has the user's cancel, and the generation has failed since the restore. */
static void a_failure_after_the_restore_does_not_undo_the_cancel_of_a_card(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records card = {0};

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, "procs_per_node: 2\nmax_restarts: 9\n");
    fixture_form(f, job);
    assert_true(core_card(f->core, job, &card));
    card.generations[0].state = GENERATION_DRAINING;
    card.jobs[0].state = JOB_STOPPING;
    card.jobs[0].goal = JOB_CANCELLED;
    fixture_exit(f, job, 0, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    hello_with_card(f, 901, &card);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(generation_of(f, job)->state, GENERATION_FAILED);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_exit(f, job, 1, 0, 15);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

/* Survivors of the failure wait for the next generation. If nobody told them to stop, the job would be in STOPPING for ever. */
static void check_survivors_stop(const struct core_fixture *f, int64_t job)
{
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(generation_of(f, job)->state, GENERATION_FAILED);
    for (int rank = 0; rank < 4; rank++)
        if (rank != 2)
            assert_int_equal(fixture_stop(f, job, rank), CORE_STOP_TERM);
}

static void survivors_stop_if_a_card_has_the_cancel_of_their_job(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records card = {0};

    int64_t job = staying_job_of_four(f, FOUR SAVED);
    assert_true(core_card(f->core, job, &card));
    card.generations[0].state = GENERATION_DRAINING;
    card.jobs[0].state = JOB_STOPPING;
    card.jobs[0].goal = JOB_CANCELLED;
    /* Rank 3 does not say that it can go on, so no generation follows at once. */
    f->stays = false;
    fixture_watch(f, job, 4);
    f->stays = true;
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    hello_with_card(f, 901, &card);
    check_survivors_stop(f, job);
}

static void survivors_stop_if_a_card_of_a_cancelled_job_has_their_failure(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records card = {0};

    int64_t job = staying_job_of_four(f, FOUR SAVED);
    fixture_cancel(f, job, false);
    assert_true(core_card(f->core, job, &card));
    card.generations[0].state = GENERATION_FAILED;
    card.jobs[0].state = JOB_RECOVERING;
    card.jobs[0].goal = 0;
    hello_with_card(f, 901, &card);
    check_survivors_stop(f, job);
}

/* The card has the generation that followed the one in which the user cancels the job. */
static void a_cancel_also_stops_the_later_generation_of_a_card(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(records_release) struct records before = {0}, card = {0};

    int64_t job = staying_job_of_four(f, FOUR SAVED);
    assert_true(core_card(f->core, job, &before));
    rename_job(&before, 500, "of the lost time");
    fixture_exit(f, job, 2, 0, 9);
    staying_job_rejoin(f, job, 20);
    assert_true(core_card(f->core, job, &card));
    rename_job(&card, 500, "of the lost time");
    hello_with_card(f, 901, &before);
    fixture_cancel(f, 500, false);
    hello_with_card(f, 902, &card);
    assert_int_equal(core_job(f->core, 500)->generation, 2);
    assert_int_equal(fixture_job(f, 500), JOB_STOPPING);
    assert_int_equal(core_job(f->core, 500)->goal, JOB_CANCELLED);
    assert_int_equal(generation_of(f, 500)->state, GENERATION_DRAINING);
}

static void the_latest_tune_survives_a_restored_database(void **state)
{
    adopt_revisions(*state, 0);
}

static void an_earlier_card_does_not_undo_a_tune(void **state)
{
    adopt_revisions(*state, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_job_that_only_a_node_knows_continues, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_success_counts_more_than_a_cancel_in_the_queue, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_number_or_request_of_another_job_is_refused, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_card_of_a_removed_job_is_dropped, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_job_from_the_gap_is_removed_only_once, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_impossible_epoch_is_refused, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_users_restart_does_not_end_the_wait_for_nodes, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_card_that_knows_of_an_end_is_wanted_though_it_is_behind,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(the_card_of_a_forgotten_node_is_not_newer, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_failure_does_not_end_the_wait_for_nodes, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_member_that_died_as_one_of_an_earlier_generation_is_replaced,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_card_of_a_failed_generation_does_not_undo_a_kill, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_failure_after_the_restore_does_not_undo_the_cancel_of_a_card,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_cancel_also_stops_the_later_generation_of_a_card, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(survivors_stop_if_a_card_has_the_cancel_of_their_job, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(survivors_stop_if_a_card_of_a_cancelled_job_has_their_failure,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(the_latest_tune_survives_a_restored_database, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_earlier_card_does_not_undo_a_tune, fixture_setup,
                                        fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
