/* Workers that belong to a generation which the restored records lack. */
#include "tests/unit/base/check.h"

#include "tests/unit/coordinator/core/placement/staying_job.h"

#define JOB                                                                                                  \
    "nodes: 3\nprocs_per_node: 1\nlease: 30s\n" SAVED                                                        \
    "  sync: {type: diloco, every: 10, quorum: 2, grace: 5s}\n"
#define NODES "box1 box2 box3"

static int64_t job_of_three(struct core_fixture *f)
{
    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    return staying_job(f, JOB);
}

/* Generation 2 has the spawns 1 and 3, and 2 is late. */
static int64_t job_with_late(struct core_fixture *f)
{
    const int64_t job = job_of_three(f);

    f->arrived = 4;
    fixture_watch(f, job, 1);
    fixture_watch(f, job, 3);
    f->arrived = 0;
    fixture_pass_beating(f, 5001, NODES);
    fixture_pass(f, 0);
    staying_job_rejoin(f, job, 40);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
    return job;
}

/* The lost records had a generation 3 of the spawns 1 and 2. */
static void its_workers_go_on_in_a_generation_with_a_later_number(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_with_late(f);

    fixture_watch_in(f, job, 2, 2); /* a late member names the generation in which it was late, at most */
    assert_int_equal(fixture_generation(f, job)->number, 2);
    const uint64_t late = fixture_watch_in(f, job, 2, 3);
    assert_int_equal(core_generation(f->core, job, 2)->state, GENERATION_FAILED);
    assert_false(core_generation(f->core, job, 2)->charged);
    assert_true(fixture_said(f, "the restored records lack generation 3"));
    assert_int_equal(fixture_generation(f, job)->number, 4);
    assert_int_equal(fixture_generation(f, job)->world_size, 3);
    for (int64_t spawn = 1; spawn <= 3; spawn++)
        assert_int_equal(core_spawn_rank(f->core, job, spawn)->generation, 4);
    assert_string_equal(staying_watch_says(f, late), "member");
    staying_job_rejoin(f, job, 60);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(staying_record(f, job)->restarts_used, 0);
    fixture_watch_in(f, job, 1, 4);
    assert_int_equal(fixture_generation(f, job)->number, 4);
}

/* Until then the card of a node may bring the generation. */
static void they_wait_while_cards_may_come(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_with_late(f);
    struct core_event event = {.kind = CORE_HELLO, .session = 950};

    event.hello = (struct core_hello){.node = "box4",
                                      .instance = "box4",
                                      .cluster_id = "c1",
                                      .epoch = f->config.epoch + 1,
                                      .keeps_cards = true};
    core_event(f->core, &event, f->now, &f->out);
    uint64_t call = fixture_watch_in(f, job, 2, 3);
    assert_int_equal(fixture_reply(f, call)->err.code, ERR_UNAVAILABLE);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(core_generation(f->core, job, 2)->state, GENERATION_RUNNING);
    fixture_pass_beating(f, 60000, NODES);
    fixture_watch_in(f, job, 1, 3);
    assert_int_equal(fixture_generation(f, job)->number, 4);
    assert_int_equal(fixture_generation(f, job)->world_size, 3);
}

static void an_impossible_number_is_ignored(void **state)
{
    struct core_fixture *f = *state;
    const int64_t job = job_with_late(f);

    fixture_watch_in(f, job, 2, INT64_MAX);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(core_generation(f->core, job, 2)->state, GENERATION_RUNNING);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(its_workers_go_on_in_a_generation_with_a_later_number),
        TEST(they_wait_while_cards_may_come),
        TEST(an_impossible_number_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
