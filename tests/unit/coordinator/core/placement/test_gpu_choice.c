/* Which GPUs workers get while others are reserved. */
#include "tests/unit/base/check.h"

#include "tests/unit/coordinator/core/core_fixture_kept.h"

static uint64_t gpu_node(struct core_fixture *f, const char *name)
{
    const uint64_t session = fixture_hello(f, name, name, 4, 2);

    fixture_facts(f, name, NULL, 0);
    return session;
}

/* The first of box1's two GPUs becomes sick or healthy. */
static void tell_first_gpu(struct core_fixture *f, uint64_t session, bool healthy)
{
    struct core_gpu gpus[] = {
        {.uuid = (char *)"GPU-box1-0", .index = 0, .healthy = healthy},
        {.uuid = (char *)"GPU-box1-1", .index = 1, .healthy = true},
    };
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = session};

    event.heartbeat.gpus = gpus;
    event.heartbeat.gpu_count = 2;
    core_event(f->core, &event, f->now, &f->out);
}

static const char *gpu_of(const struct core_fixture *f, int64_t job, int rank)
{
    const int64_t number = fixture_spawn(f, job, rank);

    for (size_t i = 0; i < f->kept.spawn_count; i++)
        if (f->kept.spawns[i].job == job && f->kept.spawns[i].spawn == number)
            return f->kept.spawns[i].gpu_uuids[0];
    return "none";
}

/* One of the GPUs was sick when the job started, so the job does not hold it. It needs both after the stop. The other job has place
 * for its two workers, but not on one GPU. */
static void a_job_that_stops_to_grow_finds_room_on_each_gpu(void **state)
{
    struct core_fixture *f = *state;

    f->gpu_slots = 2;
    const uint64_t session = gpu_node(f, "box1");
    tell_first_gpu(f, session, false);
    const int64_t job = fixture_submit(f, "nodes: 1:2\ngpus_per_proc: all\n");
    fixture_form(f, job);
    tell_first_gpu(f, session, true);
    gpu_node(f, "box2");
    fixture_pass_beating(f, 60000, "box1 box2");
    assert_true(fixture_said(f, "resize to 2 nodes: box2 joins"));
    const int64_t other = fixture_submit(f, "only_nodes: [box1]\nprocs_per_node: 2\ngpus_per_proc: 1\n");
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_generation(f, job)->node_count, 2);
}

/* The worker that is stopped holds the sick GPU, which is of no use to the next one. */
static void a_job_that_leaves_a_sick_gpu_gets_the_healthy_gpu(void **state)
{
    struct core_fixture *f = *state;
    const uint64_t session = gpu_node(f, "box1");
    const int64_t job = fixture_submit(f, "gpus_per_proc: 1\n");

    fixture_form(f, job);
    tell_first_gpu(f, session, false);
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    const int64_t other = fixture_submit(f, "gpus_per_proc: 1\n");
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    fixture_exit(f, job, 0, 0, 15);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    fixture_keep_changes(f);
    assert_string_equal(gpu_of(f, job, 0), "GPU-box1-1");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_that_stops_to_grow_finds_room_on_each_gpu),
        TEST(a_job_that_leaves_a_sick_gpu_gets_the_healthy_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
