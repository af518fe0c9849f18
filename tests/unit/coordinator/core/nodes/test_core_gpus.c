/* Sick and lost GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static void a_sick_gpu_is_not_leased(void **state)
{
    struct core_fixture *f = *state;
    struct core_gpu sick = {.uuid = (char *)"GPU-box1-0", .index = 0, .healthy = false};
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = fixture_hello(f, "box1", "i", 1, 2)};

    fixture_facts(f, "box1", NULL, 0);
    event.heartbeat.gpus = &sick;
    event.heartbeat.gpu_count = 1;
    core_event(f->core, &event, f->now, &f->out);
    int64_t both = fixture_submit(f, "procs_per_node: 2\ngpus_per_proc: 1\n");
    int64_t one = fixture_submit(f, "procs_per_node: gpu\ngpus_per_proc: 1\n");
    assert_string_equal(fixture_waits(f, both), "waits for 1 node with 2 GPUs: the cluster has 0, 1 GPU is "
                                                "sick (`ddpctl nodes` says why)");
    assert_int_equal(fixture_job(f, both), JOB_QUEUED);
    assert_int_equal(fixture_generation(f, one)->world_size, 1);
}

static void beat_with(struct core_fixture *f, uint64_t session, const struct core_gpu *gpu)
{
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = session};

    event.heartbeat.gpus = gpu;
    event.heartbeat.gpu_count = 1;
    core_event(f->core, &event, f->now, &f->out);
}

static void workers_survive_a_sick_gpu_but_not_a_lost_gpu(void **state)
{
    struct core_fixture *f = *state;
    struct core_gpu gpu = {.uuid = (char *)"GPU-box1-1", .index = 1, .problem = (char *)"Xid 63 at 14:02"};
    uint64_t session = fixture_hello(f, "box1", "i", 1, 2);

    fixture_facts(f, "box1", NULL, 0);
    int64_t first = fixture_submit(f, "gpus_per_proc: 1\n"), job = fixture_submit(f, "gpus_per_proc: 1\n");
    fixture_all_run(f, "box1");
    beat_with(f, session, &gpu);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    gpu.lost = true;
    gpu.problem = (char *)"Xid 79 at 14:03";
    beat_with(f, session, &gpu);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_int_equal(fixture_stop(f, first, 0), CORE_STOP_NONE);
    fixture_operator(f, CORE_UNDRAIN, "box1"); /* the fixture reads the events with it */
    assert_true(fixture_said(f, "box1 gpu1 of rank 0: Xid 63 at 14:02"));
    assert_true(fixture_said(f, "box1 gpu1: Xid 79 at 14:03"));
}

static void undrain_clears_gpu_faults(void **state)
{
    struct core_fixture *f = *state;

    fixture_hello(f, "box1", "i", 1, 2);
    fixture_facts(f, "box1", NULL, 0);
    fixture_operator(f, CORE_UNDRAIN, "box1");
    assert_int_equal(fixture_effects(f, EFFECT_CLEAR_GPU_FAULTS), 1);
}

static int clears_told(struct core_fixture *f, uint64_t session)
{
    int count = 0;

    for (size_t i = 0; i < f->out.effect_count; i++)
        count += f->out.effects[i].kind == EFFECT_CLEAR_GPU_FAULTS && f->out.effects[i].session == session;
    return count;
}

/* The agent remembers the faults of its GPUs while it is stopped. */
static void undrain_clears_gpu_faults_when_the_node_comes_back(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session = fixture_hello(f, "box1", "i", 1, 2);

    fixture_facts(f, "box1", NULL, 0);
    core_event(f->core, &(struct core_event){.kind = CORE_SESSION_CLOSED, .session = session}, f->now,
               &f->out);
    fixture_operator(f, CORE_UNDRAIN, "box1");
    assert_int_equal(fixture_effects(f, EFFECT_CLEAR_GPU_FAULTS), 0);
    session = fixture_hello(f, "box1", "i", 1, 2);
    assert_int_equal(clears_told(f, session), 1);
    session = fixture_hello(f, "box1", "i", 1, 2); /* only once */
    assert_int_equal(clears_told(f, session), 0);
    core_event(f->core, &(struct core_event){.kind = CORE_SESSION_CLOSED, .session = session}, f->now,
               &f->out);
    fixture_operator(f, CORE_UNDRAIN, "box1");
    fixture_operator(f, CORE_DRAIN, "box1");
    session = fixture_hello(f, "box1", "i", 1, 2);
    assert_int_equal(clears_told(f, session), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_sick_gpu_is_not_leased),
        TEST(workers_survive_a_sick_gpu_but_not_a_lost_gpu),
        TEST(undrain_clears_gpu_faults),
        TEST(undrain_clears_gpu_faults_when_the_node_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
