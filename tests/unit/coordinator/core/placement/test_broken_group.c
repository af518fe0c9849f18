/* All ranks of a train job lose their connections, and none of them dies. */
#include "tests/unit/base/check.h"

#include <stdlib.h>

#include "tests/unit/coordinator/core/placement/staying_job.h"

/* The rank says that its group no longer works. Returns its Watch. */
static uint64_t rank_is_cut_off(struct core_fixture *f, int64_t job, int rank)
{
    f->broken = true;
    uint64_t watch = fixture_watch(f, job, fixture_spawn(f, job, rank));
    f->broken = false;
    return watch;
}

static void cut_off_ranks(struct core_fixture *f, int64_t job, int count)
{
    for (int rank = 0; rank < count; rank++)
        rank_is_cut_off(f, job, rank);
}

static void all_ranks_go_on(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR "max_restarts: 0\n" TRAIN);
    uint64_t watch = rank_is_cut_off(f, job, 0);

    rank_is_cut_off(f, job, 1);
    rank_is_cut_off(f, job, 2);
    assert_int_equal(fixture_generation(f, job)->number, 1); /* rank 3 may be the one that is lost */
    rank_is_cut_off(f, job, 3);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(fixture_spawn(f, job, rank), rank + 1);
        assert_int_equal(fixture_stop(f, job, rank), CORE_STOP_NONE);
    }
    assert_string_equal(staying_watch_says(f, watch), "member");
    assert_int_equal(fixture_reply(f, watch)->generation, 2);
    staying_job_rejoin(f, job, 20);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    assert_false(core_generation(f->core, job, 1)->charged);
    assert_true(fixture_said(f, "the connections between the ranks were lost, and no rank has ended"));
    assert_true(fixture_said(f, "state from the memory of rank 0, step 20: no step to redo"));
}

static void the_others_wait_for_a_rank_that_computes(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);
    struct core_activity quiet = {.job = job, .spawn = 4, .idle_ms = 31000, .silent_ms = 31000, .state = 'S'};

    uint64_t watch = rank_is_cut_off(f, job, 0);
    assert_true(fixture_reply(f, watch)->member && fixture_reply(f, watch)->wait);
    cut_off_ranks(f, job, 3);
    core_event(f->core,
               &(struct core_event){.kind = CORE_ACTIVITY,
                                    .session = core_find_node(f->core, "box1")->session,
                                    .activity = {&quiet, 1}},
               f->now, &f->out);
    watch = rank_is_cut_off(f, job, 0); /* it asks again */
    assert_true(fixture_reply(f, watch)->member);
    assert_false(fixture_reply(f, watch)->wait); /* rank 3 hangs */
    watch = rank_is_cut_off(f, job, 3);
    assert_int_equal(fixture_generation(f, job)->number, 2);
}

static void a_dead_rank_is_replaced_and_the_others_go_on(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    cut_off_ranks(f, job, 3);
    fixture_exit(f, job, 3, 0, 9);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_spawn(f, job, 0), 1);
    assert_int_equal(fixture_spawn(f, job, 3), 5);
}

static void a_word_about_an_earlier_generation_does_not_count(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    cut_off_ranks(f, job, 3);
    fixture_exit(f, job, 3, 0, 9);
    staying_job_rejoin(f, job, 20);
    rank_is_cut_off(f, job, 3);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    cut_off_ranks(f, job, 3);
    assert_int_equal(fixture_generation(f, job)->number, 3);
}

/* A rank that ends when its group breaks would be the only one that is lost. */
static void a_rank_that_does_not_stay_ends_by_itself(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    f->stays = false;
    rank_is_cut_off(f, job, 3);
    f->stays = true;
    cut_off_ranks(f, job, 3);
    assert_int_equal(fixture_generation(f, job)->number, 1);
}

static void ranks_that_say_it_again_to_a_restarted_coordinator_go_on(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_of_four(f, FOUR SAVED);

    cut_off_ranks(f, job, 3);
    fixture_restart(f);
    rank_is_cut_off(f, job, 3);
    assert_int_equal(fixture_generation(f, job)->number, 1);
    cut_off_ranks(f, job, 3);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_FAILED);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(fixture_stop(f, job, rank), CORE_STOP_NONE);
}

static void connections_that_always_break_are_charged_in_the_end(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, FOUR SAVED);
    f->stays = true;
    for (int generation = 1; generation <= 4; generation++) {
        assert_int_equal(staying_record(f, job)->restarts_used, 0);
        fixture_form(f, job);
        cut_off_ranks(f, job, 4);
    }
    assert_int_equal(staying_record(f, job)->restarts_used, 1);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_ranks_go_on),
        TEST(the_others_wait_for_a_rank_that_computes),
        TEST(a_dead_rank_is_replaced_and_the_others_go_on),
        TEST(a_word_about_an_earlier_generation_does_not_count),
        TEST(a_rank_that_does_not_stay_ends_by_itself),
        TEST(ranks_that_say_it_again_to_a_restarted_coordinator_go_on),
        TEST(connections_that_always_break_are_charged_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
