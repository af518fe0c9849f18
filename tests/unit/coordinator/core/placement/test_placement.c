/* Which jobs run where: all ranks or none, priority and age, reserved nodes and what may run past them,
 * elastic jobs, GPUs, layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

static void all_ranks_or_none(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, "nodes: 2\nprocs_per_node: 2\n");

    assert_string_equal(fixture_waits(f, job), "waits for 2 nodes with 2 slots each: the cluster has 0");
    fixture_node(f, "small", 1);
    assert_string_equal(fixture_waits(f, job),
                        "waits for 2 nodes with 2 slots each: the cluster has 0, its largest has 1");
    fixture_node(f, "box1", 4);
    assert_int_equal(fixture_job(f, job), JOB_QUEUED);
    fixture_node(f, "box2", 4);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->world_size, 4);
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    assert_string_equal(fixture_node_of(f, job, 3), "box2");
}

static void only_the_named_nodes(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 4);
    int64_t job = fixture_submit(f, "only_nodes: [box2]\n");
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    int64_t large = fixture_submit(f, "nodes: 2\nonly_nodes: [box2, box3]\n");
    assert_string_equal(
        fixture_waits(f, large),
        "waits for 2 nodes with 1 slot each: the cluster has 1 of the 2 nodes in its only_nodes");
    fixture_node(f, "box3", 4);
    assert_int_equal(fixture_job(f, large), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, large, 1), "box3");
}

static void priority_then_age(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t running = fixture_submit(f, ""), old = fixture_submit(f, ""), young = fixture_submit(f, "");
    int64_t urgent = fixture_submit(f, "priority: 5\n");
    fixture_form(f, running);
    fixture_exit(f, running, 0, 0, 0);
    assert_int_equal(fixture_job(f, urgent), JOB_STARTING);
    fixture_form(f, urgent);
    fixture_exit(f, urgent, 0, 0, 0);
    assert_int_equal(fixture_job(f, old), JOB_STARTING);
    assert_int_equal(fixture_job(f, young), JOB_QUEUED);
}

/* Small jobs keep coming, and the big job still gets its turn. */
static void a_blocked_head_is_not_starved(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    int64_t first = fixture_submit(f, ""), second = fixture_submit(f, "");
    fixture_form(f, first);
    fixture_form(f, second);
    int64_t big = fixture_submit(f, "nodes: 2\nprocs_per_node: 2\n");
    int64_t small = fixture_submit(f, ""), smaller = fixture_submit(f, "");
    assert_int_equal(fixture_job(f, big), JOB_QUEUED);
    assert_int_equal(fixture_job(f, small), JOB_QUEUED);
    assert_int_equal(fixture_job(f, smaller), JOB_QUEUED);
    assert_non_null(strstr(fixture_waits(f, small), "waits behind job"));
    fixture_exit(f, first, 0, 0, 0);
    assert_int_equal(fixture_job(f, small), JOB_QUEUED);
    fixture_exit(f, second, 0, 0, 0);
    assert_int_equal(fixture_job(f, big), JOB_STARTING);
}

static void small_jobs_run_where_the_head_does_not_wait(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 1);
    int64_t holder = fixture_submit(f, "procs_per_node: 2\n");
    fixture_form(f, holder);
    int64_t head = fixture_submit(f, "procs_per_node: 3\n"), small = fixture_submit(f, "");
    assert_int_equal(fixture_job(f, head), JOB_QUEUED);
    assert_int_equal(fixture_job(f, small), JOB_STARTING); /* box2 is of no use to the head */
    assert_string_equal(fixture_node_of(f, small, 0), "box2");
    assert_string_equal(fixture_waits(f, head), "waits for 1 slot on box1: job 1 holds it");
    int64_t on_box1 = fixture_submit(f, "");
    assert_int_equal(fixture_job(f, on_box1),
                     JOB_QUEUED); /* the free slots of box1 are reserved for the head */
}

static void nothing_is_reserved_on_a_node_that_may_never_work(void **state)
{
    struct core_fixture *f = *state;
    struct spawn_fact stranger = {.job = 99, .spawn = 1, .state = SPAWN_RUNNING};

    fixture_hello(f, "box1", "i", 2, 0);
    fixture_facts(f, "box1", &stranger, 1);
    fixture_node(f, "box2", 2);
    fixture_form(f, fixture_submit(f, ""));
    int64_t head = fixture_submit(f, "procs_per_node: 2\n"), small = fixture_submit(f, "");
    assert_int_equal(fixture_job(f, small), JOB_QUEUED); /* box2's free slot is reserved for the head */
    fixture_exit(f, 1, 0, 0, 0);
    assert_int_equal(fixture_job(f, head), JOB_STARTING);
}

static void a_job_too_big_for_the_cluster_blocks_no_other_job(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    int64_t big = fixture_submit(f, "nodes: 2\n"), small = fixture_submit(f, "");
    assert_int_equal(fixture_job(f, small), JOB_STARTING);
    assert_string_equal(fixture_waits(f, big), "waits for 2 nodes with 1 slot each: the cluster has 1");
}

static void elastic_jobs_take_the_nodes_that_exist(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    int64_t three = fixture_submit(f, "nodes: \"1:4\"\n");
    assert_int_equal(fixture_generation(f, three)->node_count, 3);
    fixture_node(f, "box4", 2);
    int64_t one = fixture_submit(f, "nodes: \"1:4\"\n");
    assert_int_equal(fixture_generation(f, one)->node_count, 1);
}

static void a_layout_is_repeated(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box2", 2);
    fixture_node(f, "box3", 2);
    int64_t job = fixture_submit(f, "nodes: 2\nprocs_per_node: 2\nmax_restarts: 1\n");
    fixture_form(f, job);
    fixture_node(f, "box1", 2); /* would come first if the job had not been elsewhere */
    fixture_exit(f, job, 1, 0, 9);
    fixture_all_obey(f, "box2");
    fixture_all_obey(f, "box3");
    assert_int_equal(core_job(f->core, job)->generation, 2);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_string_equal(fixture_node_of(f, job, 3), "box3");
}

/* Slots that become free one by one stay with the job that restarts in them. */
static void a_recovering_job_keeps_its_slots(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "procs_per_node: 2\nmax_restarts: 3\n");
    fixture_form(f, job);
    int64_t other = fixture_submit(f, "priority: 9\n");
    fixture_exit(f, job, 0, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
    assert_string_equal(fixture_waits(f, other), "waits for slots that are reserved for jobs before it");
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_job(f, other), JOB_QUEUED);
}

static void gpus_are_leased_by_uuid(void **state)
{
    struct core_fixture *f = *state;

    fixture_hello(f, "box1", "i", 2, 4);
    fixture_facts(f, "box1", NULL, 0);
    int64_t job = fixture_submit(f, "procs_per_node: 2\ngpus_per_proc: 2\n");
    struct core_wish wish;
    struct err e;
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].job, job);
    assert_string_equal(wish.groups[0].spawns[0].gpu_uuids[0], "GPU-box1-0");
    assert_string_equal(wish.groups[0].spawns[1].gpu_uuids[1], "GPU-box1-3");
    assert_int_equal(wish.groups[0].spawns[0].cpu_slot, -1);
    core_wish_release(&wish);
    int64_t second = fixture_submit(f, "gpus_per_proc: 1\n");
    assert_string_equal(fixture_waits(f, second), "waits for 1 GPU on box1: job 1 holds it");
}

static void gpu_box(struct core_fixture *f, const char *name, int gpus, const char *nccl)
{
    f->nccl = nccl;
    fixture_hello(f, name, name, 4, gpus);
    fixture_facts(f, name, NULL, 0);
}

static void workers_share_gpus_evenly(void **state)
{
    struct core_fixture *f = *state;

    f->gpu_slots = 2;
    gpu_box(f, "box1", 2, NULL);
    int64_t two = fixture_submit(f, "procs_per_node: 2\ngpus_per_proc: 1\n");
    int64_t one = fixture_submit(f, "gpus_per_proc: 1\n");
    struct core_wish wish;
    struct err e;
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_string_equal(wish.groups[0].spawns[0].gpu_uuids[0], "GPU-box1-0");
    assert_string_equal(wish.groups[0].spawns[1].gpu_uuids[0], "GPU-box1-1");
    assert_string_equal(wish.groups[1].spawns[0].gpu_uuids[0], "GPU-box1-0");
    core_wish_release(&wish);
    /* box1 has one slot left on one GPU: not two different GPUs, nor two slots */
    int64_t wide = fixture_submit(f, "gpus_per_proc: 2\n");
    assert_int_equal(fixture_job(f, one), JOB_STARTING);
    assert_string_equal(fixture_waits(f, wide), "waits for 1 GPU on box1: job 1 and others hold it");
    fixture_all_run(f, "box1");
    fixture_exit(f, two, 0, 0, 0);
    assert_int_equal(fixture_job(f, wide), JOB_STARTING);
}

static void two_slots_of_one_gpu_are_not_two_gpus(void **state)
{
    struct core_fixture *f = *state;

    f->gpu_slots = 2;
    gpu_box(f, "box1", 2, NULL);
    int64_t first = fixture_submit(f, "gpus_per_proc: 1\n"), other = fixture_submit(f, "gpus_per_proc: 1\n");
    int64_t third = fixture_submit(f, "gpus_per_proc: 1\n"), fourth = fixture_submit(f, "gpus_per_proc: 1\n");
    fixture_all_run(f, "box1");
    fixture_exit(f, other, 0, 0, 0);
    fixture_exit(f, fourth, 0, 0, 0); /* GPU 1 is free twice, GPU 0 is full */
    int64_t wide = fixture_submit(f, "gpus_per_proc: 2\n");
    assert_int_equal(fixture_job(f, wide), JOB_QUEUED);
    assert_string_equal(fixture_waits(f, wide), "waits for free slots on more GPUs on box1");
    fixture_exit(f, first, 0, 0, 0);
    assert_int_equal(fixture_job(f, wide), JOB_STARTING);
    assert_int_equal(fixture_job(f, third), JOB_RUNNING);
}

/* `device: auto` means GPUs if the cluster has some: after a stop the job would run on those. */
static void a_job_on_cpus_does_not_stop_to_grow_where_gpus_are(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, "device: auto\nnodes: \"1:2\"\n");
    fixture_form(f, job);
    gpu_box(f, "box2", 1, "2.28.9");
    fixture_submit(f, "gpus_per_proc: 1\n"); /* has the only GPU */
    fixture_pass_beating(f, 60000, "box1 box2");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE);
    fixture_hello(f, "box2", "box2", 4, 0); /* no GPUs any more: its CPUs are what the job may have */
    fixture_all_run(f, "box2");
    fixture_pass_beating(f, 20000, "box1 box2");
    assert_true(fixture_said(f, "resize to 2 nodes: box2 joins"));
    assert_true(fixture_said(f, "box2 has 0 GPUs, it had 1 before"));
    assert_false(fixture_said(f, "box2 offers 1 GPU"));
}

static void gpu_leases_survive_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    struct core_wish wish;
    struct err e;

    f->gpu_slots = 2;
    gpu_box(f, "box1", 1, NULL);
    fixture_form(f, fixture_submit(f, "gpus_per_proc: 1\n"));
    fixture_restart(f);
    fixture_node(f, "box2", 2);
    /* box1 has not said hello yet, and has room for two on its GPU: they are not for CPUs */
    int64_t two = fixture_submit(f, "device: auto\nprocs_per_node: 2\n");
    assert_int_equal(fixture_job(f, two), JOB_QUEUED);
    fixture_hello(f, "box1", "box1", 4, 1);
    fixture_all_run(f, "box1");
    assert_string_equal(fixture_waits(f, two), "waits for 1 GPU on box1: job 1 holds it");
    int64_t one = fixture_submit(f, "device: auto\npriority: 1\n");
    assert_int_equal(fixture_job(f, one), JOB_STARTING); /* the other half */
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.group_count, 2);
    core_wish_release(&wish);
}

static void a_job_that_moves_to_cpus_reports_it(void **state)
{
    struct core_fixture *f = *state;

    gpu_box(f, "box1", 1, NULL);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, "device: auto\nmax_restarts: 1\n");
    fixture_form(f, job);
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    fixture_pass_beating(f, 80000, "box2"); /* box1 is lost, and so is its lease */
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    assert_true(
        fixture_said(f, "continues on CPUs because too few GPUs are available; run `ddpctl restart 1`"));
    fixture_all_run(f, "box2");
    gpu_box(f, "box1", 1, NULL);
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    fixture_exit(f, job, 0, 0, 15);
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
}

static void ports_are_not_reused_soon(void **state)
{
    struct core_fixture *f = *state;
    int ports[3];

    fixture_node(f, "box1", 4);
    for (int i = 0; i < 3; i++)
        ports[i] = fixture_generation(f, fixture_submit(f, ""))->master_port;
    assert_in_range(ports[0], 29700, 29703);
    assert_int_not_equal(ports[0], ports[1]);
    assert_int_not_equal(ports[1], ports[2]);
    assert_int_not_equal(ports[0], ports[2]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_ranks_or_none),
        TEST(only_the_named_nodes),
        TEST(priority_then_age),
        TEST(a_blocked_head_is_not_starved),
        TEST(small_jobs_run_where_the_head_does_not_wait),
        TEST(nothing_is_reserved_on_a_node_that_may_never_work),
        TEST(a_job_too_big_for_the_cluster_blocks_no_other_job),
        TEST(elastic_jobs_take_the_nodes_that_exist),
        TEST(a_layout_is_repeated),
        TEST(a_recovering_job_keeps_its_slots),
        TEST(gpus_are_leased_by_uuid),
        TEST(workers_share_gpus_evenly),
        TEST(two_slots_of_one_gpu_are_not_two_gpus),
        TEST(a_job_on_cpus_does_not_stop_to_grow_where_gpus_are),
        TEST(gpu_leases_survive_a_coordinator_restart),
        TEST(a_job_that_moves_to_cpus_reports_it),
        TEST(ports_are_not_reused_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
