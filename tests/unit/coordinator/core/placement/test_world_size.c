/* Jobs that need a world size which divides their shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

/* reproducible: world takes the largest world that divides its shards. */
static void a_world_size_divides_the_shards(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    int64_t job = fixture_submit(f, "nodes: \"1:4\"\n" WORLD), beside = fixture_submit(f, "");
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
    assert_int_equal(fixture_job(f, beside), JOB_STARTING);
}

static void a_world_size_of_unequal_nodes_divides_the_shards(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 3);
    fixture_node(f, "box2", 2);
    fixture_node(f, "box3", 2);
    int64_t job = fixture_submit(f, "nodes: \"1:4\"\nprocs_per_node: cpu\n" WORLD);
    assert_int_equal(fixture_generation(f, job)->world_size, 4);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_string_equal(fixture_node_of(f, job, 3), "box3");
}

static void a_job_waits_if_no_world_size_divides_its_shards(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    int64_t job = fixture_submit(f, "nodes: \"3:4\"\n" WORLD), beside = fixture_submit(f, "nodes: 3\n");
    assert_string_equal(fixture_waits(f, job), "waits for nodes with a world size that divides its 4 shards: "
                                               "the 3 that fit do not");
    assert_int_equal(fixture_job(f, beside), JOB_STARTING);
    fixture_node(f, "box4", 3);
    assert_string_equal(fixture_waits(f, job), "waits for 3 slots: job 2 holds them");
    fixture_cancel(f, beside, true);
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    fixture_all_obey(f, "box3");
    assert_int_equal(fixture_generation(f, job)->world_size, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_world_size_divides_the_shards),
        TEST(a_world_size_of_unequal_nodes_divides_the_shards),
        TEST(a_job_waits_if_no_world_size_divides_its_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
