/* Whether a failure that workers of a train job outlive counts as a restart. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/worker/exits.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/placement/staying_job.h"

static void when_the_replacements_are_used_up_a_failure_counts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR "max_replacements: 1\n" SAVED);

    fixture_exit(f, job, 2, 0, 9);
    staying_job_rejoin(f, job, 20);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_true(fixture_said(
        f, "generation 2 closed (all replacements of the last 24 hours are used; restart 1 of 3)"));
    fixture_all_obey(f, "box1");
    fixture_form(f, job);
    f->now.wall_ms += 24LL * 3600 * 1000; /* a day later there is one more */
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
}

static void a_failure_without_survivors_is_no_replacement(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR "max_replacements: 1\n" SAVED);

    f->stays = false;
    for (int64_t spawn = 1; spawn <= 4; spawn++)
        fixture_watch(f, job, spawn);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    fixture_all_obey(f, "box1");
    f->stays = true;
    fixture_form(f, job);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
}

static void without_replacements_every_failure_counts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR "max_replacements: 0\n" SAVED);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_true(fixture_said(f, "generation 1 closed (restart 1 of 3)"));
}

static void a_job_without_restarts_goes_on_too(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR "max_restarts: 0\n" TRAIN);

    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    staying_job_rejoin(f, job, 20);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void a_failure_that_would_repeat_ends_the_job_and_its_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

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
    int64_t job = staying_job_of_four(f, FOUR SAVED);

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
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    f->stays = false;
    fixture_watch(f, job, 4);
    fixture_exit(f, job, 2, EXIT_PEER_LOST, 0);
    fixture_exit(f, job, 1, EXIT_NO_RESTART, 0);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

/* There is another node, but no survivor can go on there. */
static void a_job_that_moves_to_other_nodes_is_charged(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);

    fixture_node(f, "box2", 4);
    fixture_operator(f, CORE_DRAIN, "box1");
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box1"); /* now the survivors are told to stop, too */
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
}

static void when_the_last_survivor_dies_the_failure_counts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);

    fixture_exit(f, job, 0, 1, 0);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    fixture_exit(f, job, 1, 1, 0);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_true(core_generation(f->core, job, 1)->charged);
    assert_non_null(strstr(staying_record(f, job)->last_restart, "rank 2 killed by signal 9"));
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
}

static void without_restarts_the_job_fails_with_its_last_survivor(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR "max_restarts: 0\n" SAVED);

    fixture_exit(f, job, 0, 1, 0);
    fixture_exit(f, job, 1, 1, 0);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(staying_record(f, job)->exit_code, 137);
    assert_non_null(strstr(staying_record(f, job)->reason, "rank 2 killed by signal 9"));
}

static void a_restarted_coordinator_knows_that_the_failure_may_count(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);

    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_run(f, "box1");
    fixture_exit(f, job, 0, 1, 0);
    fixture_exit(f, job, 1, 1, 0);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
}

/* The failure may never become a restart, so it does not take the place of one that did. */
static void a_culprit_seen_late_is_no_restart_yet(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    f->stays = false;
    fixture_watch(f, job, 1);
    for (int64_t spawn = 2; spawn <= 4; spawn++)
        fixture_watch(f, job, spawn);
    fixture_exit(f, job, 3, 7, 0);
    fixture_all_obey(f, "box1");
    f->stays = true;
    fixture_form(f, job);
    assert_non_null(strstr(staying_record(f, job)->last_restart, "code 7"));
    f->stays = false;
    fixture_watch(f, job, fixture_spawn(f, job, 2));
    fixture_watch(f, job, fixture_spawn(f, job, 3));
    fixture_exit(f, job, 2, EXIT_PEER_LOST, 0);
    fixture_exit(f, job, 1, 0, 11);
    assert_true(fixture_said(f, "this failure came first"));
    assert_non_null(strstr(staying_record(f, job)->last_restart, "code 7"));
}

/* All ranks have waited for word of a lost peer, in vain. They end one after the other, so no process may be replaced for it. */
static void a_broken_group_has_no_survivors(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    fixture_exit(f, job, 2, EXIT_PEER_LOST, 0);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
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
        assert_int_equal(staying_record(f, job)->restarts_used, 0);
        assert_int_equal(staying_record(f, job)->generation, generation + 1);
    }
    fixture_form(f, job);
    fixture_exit(f, job, 2, 0, 11);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

/* Survivors without a state repeat the same steps, and each generation fails at the same step. */
static void steps_that_are_made_again_do_not_count(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    for (int generation = 1; generation <= 4; generation++) {
        fixture_exit(f, job, 2, 0, 9);
        assert_int_equal(staying_record(f, job)->restarts_used, 0);
        staying_job_rejoin(f, job, 0);
        assert_int_equal(fixture_job(f, job), JOB_RUNNING);
        fixture_report(f, job, 0, 20, "loss", 0.5);
    }
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

/* Ranks report only every few steps. What a generation has done without a report shows in the state that the next one goes on from. */
static void steps_that_nobody_reported_count(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR "max_restarts: 0\n" TRAIN);

    for (int64_t i = 1; i <= 10; i++) {
        fixture_exit(f, job, 2, 0, 9);
        assert_int_equal(fixture_job(f, job), JOB_STARTING);
        staying_job_rejoin(f, job, 5 * i);
        assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    }
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
}

/* The ranks come to another step each time, and one generation dies before it reports. */
static void only_a_new_most_step_counts(void **state)
{
    struct core_fixture *f = *state;
    static const int64_t reached[] = {10, 0, 20, 15};
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    for (size_t i = 0; i < sizeof(reached) / sizeof(*reached); i++) {
        fixture_exit(f, job, 2, 0, 9);
        assert_int_equal(staying_record(f, job)->restarts_used, 0);
        staying_job_rejoin(f, job, 0);
        if (reached[i])
            fixture_report(f, job, 0, reached[i], "loss", 0.5);
    }
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(when_the_replacements_are_used_up_a_failure_counts),
        TEST(a_failure_without_survivors_is_no_replacement),
        TEST(without_replacements_every_failure_counts),
        TEST(a_job_without_restarts_goes_on_too),
        TEST(a_failure_that_would_repeat_ends_the_job_and_its_survivors),
        TEST(the_culprit_may_be_seen_among_the_survivors),
        TEST(a_culprit_that_ends_the_job_ends_its_survivors),
        TEST(a_job_that_moves_to_other_nodes_is_charged),
        TEST(when_the_last_survivor_dies_the_failure_counts),
        TEST(without_restarts_the_job_fails_with_its_last_survivor),
        TEST(a_restarted_coordinator_knows_that_the_failure_may_count),
        TEST(a_culprit_seen_late_is_no_restart_yet),
        TEST(a_broken_group_has_no_survivors),
        TEST(failures_without_a_step_are_charged_in_the_end),
        TEST(steps_that_are_made_again_do_not_count),
        TEST(only_a_new_most_step_counts),
        TEST(steps_that_nobody_reported_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
