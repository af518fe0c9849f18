/* Nodes with different versions of NCCL, or of the other libraries that compute on GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static void gpu_box(struct core_fixture *f, const char *name, int gpus, const char *nccl)
{
    f->nccl = nccl;
    fixture_hello(f, name, name, 4, gpus);
    fixture_facts(f, name, NULL, 0);
}

static void a_generation_has_one_nccl_version(void **state)
{
    struct core_fixture *f = *state;

    gpu_box(f, "box1", 2, "2.28.9");
    gpu_box(f, "box2", 2, "2.27.3");
    gpu_box(f, "box3", 2, "none");
    int64_t job = fixture_submit(f, "nodes: 2\ngpus_per_proc: 1\n" TRAIN);
    assert_string_equal(fixture_waits(f, job),
                        "waits for 2 nodes with the same version of NCCL: box1 has 2.28.9, box2 has 2.27.3");
    gpu_box(f, "box1", 2, NULL); /* an agent that has just started and does not know its version yet */
    assert_non_null(strstr(fixture_waits(f, job), "box1 has 2.28.9"));
    int64_t command = fixture_submit(f, "nodes: 3\ngpus_per_proc: 1\n"); /* a command brings its own NCCL */
    assert_int_equal(fixture_job(f, command), JOB_STARTING);
    gpu_box(f, "box4", 2, "2.27.3");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_string_equal(fixture_node_of(f, job, 1), "box4");
}

static void gpus_without_a_plugin_run_no_train_job(void **state)
{
    struct core_fixture *f = *state;

    gpu_box(f, "box1", 2, "none");
    int64_t job = fixture_submit(f, "gpus_per_proc: 1\n" TRAIN);
    assert_string_equal(fixture_waits(f, job),
                        "waits for 1 node with 1 GPU: the cluster has 0, 1 with GPUs but no GPU plugin "
                        "(`ddp-trainer --plugin` says why)");
}

static void a_node_without_nccl_trains_with_one_worker(void **state)
{
    struct core_fixture *f = *state;

    gpu_box(f, "box1", 2, "missing");
    gpu_box(f, "box2", 2, "missing");
    int64_t wide = fixture_submit(f, "procs_per_node: 2\ngpus_per_proc: 1\n" TRAIN);
    assert_string_equal(
        fixture_waits(f, wide),
        "waits for 1 node with 2 GPUs: the cluster has 0, 2 with GPUs but no NCCL, which more than "
        "one worker needs (`ddp-trainer --plugin` says why)");
    int64_t two = fixture_submit(f, "nodes: 2\ngpus_per_proc: 1\nprocs_per_node: 1\n" TRAIN);
    assert_non_null(strstr(fixture_waits(f, two), "2 with GPUs but no NCCL"));
    /* The same versions of nothing: a second node would bring a second rank. */
    int64_t elastic = fixture_submit(f, "nodes: \"1:2\"\ngpus_per_proc: 1\nprocs_per_node: 1\n" TRAIN);
    assert_int_equal(fixture_job(f, elastic), JOB_STARTING);
    assert_int_equal(fixture_generation(f, elastic)->world_size, 1);
    int64_t command = fixture_submit(f, "nodes: 2\ngpus_per_proc: 1\n"); /* a command brings its own NCCL */
    assert_int_equal(fixture_job(f, command), JOB_STARTING);
}

static void growth_keeps_the_nccl_version(void **state)
{
    struct core_fixture *f = *state;

    gpu_box(f, "box1", 1, "2.28.9");
    int64_t job =
        fixture_submit(f, "nodes: \"1:3\"\ngpus_per_proc: 1\n" TRAIN "  snapshot: {dir: /out, every: 10}\n");
    fixture_form(f, job);
    gpu_box(f, "box2", 1, "2.27.3");
    fixture_pass_beating(f, 60000, "box1 box2");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    gpu_box(f, "box3", 1, "2.28.9");
    fixture_pass_beating(f, 20000, "box1 box2 box3");
    assert_true(fixture_said(f, "resize to 2 nodes: box3 joins"));
}

static void nodes_with_different_plugins_are_reported(void **state)
{
    struct core_fixture *f = *state;

    f->plugin = "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0";
    gpu_box(f, "box1", 4, "2.28.9");
    gpu_box(f, "box2", 4, "2.28.9");
    fixture_submit(f, "nodes: 2\ngpus_per_proc: 1\n" TRAIN);
    fixture_operator(f, CORE_UNDRAIN, "box1"); /* the fixture reads the events with it */
    assert_false(fixture_said(f, "trains with"));
    f->plugin = "CUDA 13.0, NCCL 2.28.9";
    gpu_box(f, "box3", 4, "2.28.9");
    gpu_box(f, "box4", 1, "2.28.9");
    fixture_submit(f, "nodes: 3\ngpus_per_proc: 1\n"); /* a command's libraries are its own */
    fixture_operator(f, CORE_UNDRAIN, "box1");
    assert_false(fixture_said(f, "trains with"));
    int64_t job = fixture_submit(f, "nodes: 3\ngpus_per_proc: 1\n" TRAIN);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    fixture_operator(f, CORE_UNDRAIN, "box1");
    assert_true(fixture_said(
        f, "box1 trains with CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0, box3 with CUDA 13.0, NCCL 2.28.9"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_generation_has_one_nccl_version),          TEST(gpus_without_a_plugin_run_no_train_job),
        TEST(a_node_without_nccl_trains_with_one_worker), TEST(growth_keeps_the_nccl_version),
        TEST(nodes_with_different_plugins_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
