/* How many ranks of a job are present while it runs, and how many it wants. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "tests/unit/coordinator/core/placement/staying_job.h"

#define QUORUM                                                                                               \
    "nodes: 2\nprocs_per_node: 2\n" SAVED "  sync: {type: diloco, every: 10, quorum: 2, grace: 1s}\n"
#define ELASTIC "nodes: \"1:3\"\nprocs_per_node: 1\n"

/* Checks the two numbers, and why ranks are missing. */
static void check_presence(const struct core_fixture *f, int64_t job, int64_t present, int64_t wanted,
                           const char *missing)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_string_equal(status.presence.missing, missing);
    assert_int_equal(status.presence.present, present);
    assert_int_equal(status.presence.wanted, wanted);
    core_job_status_release(&status);
}

static void a_rank_is_replaced(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, FOUR SAVED);
    f->stays = true;
    check_presence(f, job, 0, 0, ""); /* its first start is no replacement */
    fixture_form(f, job);
    check_presence(f, job, 4, 4, "");
    fixture_exit(f, job, 2, 0, 9);
    check_presence(f, job, 3, 4, "rank 2 on box1 is being replaced");
    staying_job_rejoin(f, job, 20);
    check_presence(f, job, 4, 4, "");
}

static void a_rank_waits_for_its_replacement(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = staying_job_waits(f, FOUR SAVED);

    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    check_presence(f, job, 2, 4, "ranks 2, 3 on box1 are being replaced");
}

static void a_job_that_starts_again_has_no_members(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, FOUR SAVED);
    fixture_form(f, job);
    fixture_exit(f, job, 2, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    check_presence(f, job, 0, 0, "");
}

static void an_elastic_job_lacks_nodes(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = staying_job(f, ELASTIC SAVED);
    check_presence(f, job, 1, 3, "waits for 2 nodes");
    fixture_node(f, "box2", 1);
    check_presence(f, job, 1, 3, "box2 will join");
    fixture_pass_beating(f, 6000, "box1 box2");
    check_presence(f, job, 1, 3, "box2 joins");
    f->ready = core_find_job(f->core, job)->handover.number;
    fixture_watch(f, job, 1);
    f->ready = 0;
    assert_int_equal(fixture_generation(f, job)->number, 2);
    check_presence(f, job, 1, 3, "rank 1 on box2 joins");
    staying_job_rejoin(f, job, 20);
    check_presence(f, job, 2, 3, "waits for a node");
}

static void a_node_that_is_lost_is_named(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    int64_t job = staying_job(f, ELASTIC SAVED);
    check_presence(f, job, 3, 3, "");
    fixture_pass_beating(f, 10000, "box1 box2");
    assert_int_equal(fixture_generation(f, job)->number, 2);
    staying_job_rejoin(f, job, 20);
    check_presence(f, job, 2, 3, "box3 is lost");
    fixture_operator(f, CORE_DRAIN, "box3");
    check_presence(f, job, 2, 3, "box3 is drained");
}

/* With 4 shards and a rank on each node, three nodes are too many for two and too few for four. */
static void a_world_size_that_cannot_be_is_not_wanted(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = staying_job(f, ELASTIC WORLD);
    check_presence(f, job, 2, 2, "");
}

static void spawn_arrives(struct core_fixture *f, int64_t job, int64_t spawn, int64_t exchange)
{
    f->arrived = exchange;
    fixture_watch(f, job, spawn);
    f->arrived = 0;
}

/* One rank of three is late, and its node has another rank that is not. */
static void a_late_rank_is_reported(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    const int64_t job = staying_job(f, QUORUM);
    check_presence(f, job, 4, 4, "");
    spawn_arrives(f, job, 1, 4);
    spawn_arrives(f, job, 2, 4);
    spawn_arrives(f, job, 3, 4);
    fixture_pass_beating(f, 1001, "box1 box2");
    fixture_pass(f, 0);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    staying_job_rejoin(f, job, 20);
    check_presence(f, job, 3, 4, "rank 3 on box2 is late (1 round, 1 ms)");
    spawn_arrives(f, job, 1, 5);
    spawn_arrives(f, job, 2, 6);
    fixture_pass_beating(f, 65000, "box1 box2");
    check_presence(f, job, 3, 4, "rank 3 on box2 is late (2 rounds, 1m03s)");
    const struct spawn_fact facts[] = {
        {.job = job, .spawn = 3, .state = SPAWN_RUNNING, .pid = 103},
        {.job = job, .spawn = 4, .state = SPAWN_EXITED, .pid = 104, .signal = 9}};
    fixture_facts(f, "box2", facts, 2);
    check_presence(f, job, 3, 4, "a rank that was late has ended");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rank_is_replaced),
        TEST(a_rank_waits_for_its_replacement),
        TEST(a_job_that_starts_again_has_no_members),
        TEST(an_elastic_job_lacks_nodes),
        TEST(a_node_that_is_lost_is_named),
        TEST(a_world_size_that_cannot_be_is_not_wanted),
        TEST(a_late_rank_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
