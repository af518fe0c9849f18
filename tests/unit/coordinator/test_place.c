/* Who runs where: gangs, priority and age, kept places and what may run past them, elastic jobs, GPUs,
 * layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core_test.h"

static void all_ranks_or_none(void **state)
{
    struct bench *b = *state;
    int64_t job = bench_submit(b, "nodes: 2\nprocs_per_node: 2\n");

    assert_string_equal(bench_waits(b, job), "waits for 2 nodes with 2 slots each: the cluster has 0");
    bench_node(b, "small", 1);
    assert_string_equal(bench_waits(b, job),
                        "waits for 2 nodes with 2 slots each: the cluster has 0, its largest has 1");
    bench_node(b, "box1", 4);
    assert_int_equal(bench_job(b, job), JOB_QUEUED);
    bench_node(b, "box2", 4);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(bench_generation(b, job)->world_size, 4);
    assert_string_equal(bench_node_of(b, job, 0), "box1");
    assert_string_equal(bench_node_of(b, job, 3), "box2");
}

static void priority_then_age(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t running = bench_submit(b, ""), old = bench_submit(b, ""), young = bench_submit(b, "");
    int64_t urgent = bench_submit(b, "priority: 5\n");
    bench_form(b, running);
    bench_exit(b, running, 0, 0, 0);
    assert_int_equal(bench_job(b, urgent), JOB_STARTING);
    bench_form(b, urgent);
    bench_exit(b, urgent, 0, 0, 0);
    assert_int_equal(bench_job(b, old), JOB_STARTING);
    assert_int_equal(bench_job(b, young), JOB_QUEUED);
}

/* Small jobs keep coming; the big one gets its turn all the same. */
static void a_blocked_head_is_not_starved(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 2);
    bench_node(b, "box2", 2);
    int64_t first = bench_submit(b, ""), second = bench_submit(b, "");
    bench_form(b, first);
    bench_form(b, second);
    int64_t big = bench_submit(b, "nodes: 2\nprocs_per_node: 2\n");
    int64_t small = bench_submit(b, ""), smaller = bench_submit(b, "");
    assert_int_equal(bench_job(b, big), JOB_QUEUED);
    assert_int_equal(bench_job(b, small), JOB_QUEUED);
    assert_int_equal(bench_job(b, smaller), JOB_QUEUED);
    assert_non_null(strstr(bench_waits(b, small), "waits behind job"));
    bench_exit(b, first, 0, 0, 0);
    assert_int_equal(bench_job(b, small), JOB_QUEUED);
    bench_exit(b, second, 0, 0, 0);
    assert_int_equal(bench_job(b, big), JOB_STARTING);
}

static void small_jobs_run_where_the_head_does_not_wait(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 4);
    bench_node(b, "box2", 1);
    int64_t holder = bench_submit(b, "procs_per_node: 2\n");
    bench_form(b, holder);
    int64_t head = bench_submit(b, "procs_per_node: 3\n"), small = bench_submit(b, "");
    assert_int_equal(bench_job(b, head), JOB_QUEUED);
    assert_int_equal(bench_job(b, small), JOB_STARTING); /* box2 is of no use to the head */
    assert_string_equal(bench_node_of(b, small, 0), "box2");
    assert_string_equal(bench_waits(b, head), "waits for 1 slot on box1: job 1 holds it");
    int64_t on_box1 = bench_submit(b, "");
    assert_int_equal(bench_job(b, on_box1), JOB_QUEUED); /* the free slots of box1 are the head's */
}

static void no_place_is_kept_on_a_node_that_may_never_work(void **state)
{
    struct bench *b = *state;
    struct core_fact stranger = {.job = 99, .spawn = 1, .state = FACT_RUNNING};

    bench_hello(b, "box1", "i", 2, 0);
    bench_facts(b, "box1", &stranger, 1);
    bench_node(b, "box2", 2);
    bench_form(b, bench_submit(b, ""));
    int64_t head = bench_submit(b, "procs_per_node: 2\n"), small = bench_submit(b, "");
    assert_int_equal(bench_job(b, small), JOB_QUEUED); /* box2's free slot is kept for the head */
    bench_exit(b, 1, 0, 0, 0);
    assert_int_equal(bench_job(b, head), JOB_STARTING);
}

static void a_job_too_big_for_the_cluster_blocks_nobody(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 2);
    int64_t big = bench_submit(b, "nodes: 2\n"), small = bench_submit(b, "");
    assert_int_equal(bench_job(b, small), JOB_STARTING);
    assert_string_equal(bench_waits(b, big), "waits for 2 nodes with 1 slot each: the cluster has 1");
}

static void elastic_jobs_take_what_is_there(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    bench_node(b, "box3", 1);
    int64_t three = bench_submit(b, "nodes: \"1:4\"\n");
    assert_int_equal(bench_generation(b, three)->node_count, 3);
    bench_node(b, "box4", 2);
    int64_t one = bench_submit(b, "nodes: \"1:4\"\n");
    assert_int_equal(bench_generation(b, one)->node_count, 1);
}

/* reproducible: world takes the largest world that divides its shards. */
static void a_world_divides_its_shards(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    bench_node(b, "box3", 1);
    int64_t job = bench_submit(b, "nodes: \"1:4\"\n" WORLD), beside = bench_submit(b, "");
    assert_int_equal(bench_generation(b, job)->world_size, 2);
    assert_int_equal(bench_job(b, beside), JOB_STARTING);
}

static void a_world_of_unequal_nodes_divides_too(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 3);
    bench_node(b, "box2", 2);
    bench_node(b, "box3", 2);
    int64_t job = bench_submit(b, "nodes: \"1:4\"\nprocs_per_node: cpu\n" WORLD);
    assert_int_equal(bench_generation(b, job)->world_size, 4);
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    assert_string_equal(bench_node_of(b, job, 3), "box3");
}

static void no_world_that_divides_is_waited_for(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    bench_node(b, "box3", 1);
    int64_t job = bench_submit(b, "nodes: \"3:4\"\n" WORLD), beside = bench_submit(b, "nodes: 3\n");
    assert_string_equal(bench_waits(b, job),
                        "waits for nodes that make a world size which divides its 4 shards: "
                        "the 3 that fit do not");
    assert_int_equal(bench_job(b, beside), JOB_STARTING);
    bench_node(b, "box4", 3);
    assert_string_equal(bench_waits(b, job), "waits for 3 slots: job 2 holds them");
    bench_cancel(b, beside, true);
    bench_all_obey(b, "box1");
    bench_all_obey(b, "box2");
    bench_all_obey(b, "box3");
    assert_int_equal(bench_generation(b, job)->world_size, 4);
}

static void a_layout_is_repeated(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box2", 2);
    bench_node(b, "box3", 2);
    int64_t job = bench_submit(b, "nodes: 2\nprocs_per_node: 2\n");
    bench_form(b, job);
    bench_node(b, "box1", 2); /* would come first, had the job not been elsewhere */
    bench_exit(b, job, 1, 1, 0);
    bench_all_obey(b, "box2");
    bench_all_obey(b, "box3");
    assert_int_equal(core_job(b->core, job)->generation, 2);
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    assert_string_equal(bench_node_of(b, job, 3), "box3");
}

/* Slots that free up one by one are not taken from a job that restarts in them. */
static void a_recovering_job_keeps_its_places(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 2);
    int64_t job = bench_submit(b, "procs_per_node: 2\nmax_restarts: 3\n");
    bench_form(b, job);
    int64_t other = bench_submit(b, "priority: 9\n");
    bench_exit(b, job, 0, 1, 0);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    assert_int_equal(bench_job(b, other), JOB_QUEUED);
    assert_string_equal(bench_waits(b, other), "waits for places that are kept for jobs before it");
    bench_all_obey(b, "box1");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_int_equal(bench_job(b, other), JOB_QUEUED);
}

static void gpus_are_leased_by_uuid(void **state)
{
    struct bench *b = *state;

    bench_hello(b, "box1", "i", 2, 4);
    bench_facts(b, "box1", NULL, 0);
    int64_t job = bench_submit(b, "procs_per_node: 2\ngpus_per_proc: 2\n");
    struct core_wish wish;
    struct err e;
    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].job, job);
    assert_string_equal(wish.groups[0].spawns[0].gpu_uuids[0], "GPU-box1-0");
    assert_string_equal(wish.groups[0].spawns[1].gpu_uuids[1], "GPU-box1-3");
    assert_int_equal(wish.groups[0].spawns[0].cpu_slot, -1);
    core_wish_release(&wish);
    int64_t second = bench_submit(b, "gpus_per_proc: 1\n");
    assert_string_equal(bench_waits(b, second), "waits for 1 GPU on box1: job 1 holds it");
}

static void a_sick_gpu_is_not_leased(void **state)
{
    struct bench *b = *state;
    struct core_gpu sick = {.uuid = (char *)"GPU-box1-0", .index = 0, .healthy = false};
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = bench_hello(b, "box1", "i", 1, 2)};

    bench_facts(b, "box1", NULL, 0);
    event.heartbeat.gpus = &sick;
    event.heartbeat.gpu_count = 1;
    core_event(b->core, &event, b->now, &b->out);
    int64_t both = bench_submit(b, "procs_per_node: 2\ngpus_per_proc: 1\n");
    int64_t one = bench_submit(b, "procs_per_node: gpu\ngpus_per_proc: 1\n");
    assert_string_equal(bench_waits(b, both),
                        "waits for 1 node with 2 GPUs each: the cluster has 0, 1 GPU is "
                        "sick (ddpctl nodes says why)");
    assert_int_equal(bench_job(b, both), JOB_QUEUED);
    assert_int_equal(bench_generation(b, one)->world_size, 1);
}

static void gpu_box(struct bench *b, const char *name, int gpus, const char *nccl)
{
    b->nccl = nccl;
    bench_hello(b, name, name, 4, gpus);
    bench_facts(b, name, NULL, 0);
}

static void workers_share_gpus_evenly(void **state)
{
    struct bench *b = *state;

    b->gpu_slots = 2;
    gpu_box(b, "box1", 2, NULL);
    int64_t two = bench_submit(b, "procs_per_node: 2\ngpus_per_proc: 1\n");
    int64_t one = bench_submit(b, "gpus_per_proc: 1\n");
    struct core_wish wish;
    struct err e;
    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    assert_string_equal(wish.groups[0].spawns[0].gpu_uuids[0], "GPU-box1-0");
    assert_string_equal(wish.groups[0].spawns[1].gpu_uuids[0], "GPU-box1-1");
    assert_string_equal(wish.groups[1].spawns[0].gpu_uuids[0], "GPU-box1-0");
    core_wish_release(&wish);
    /* box1 has one slot left on one GPU: not two different GPUs, nor two slots */
    int64_t wide = bench_submit(b, "gpus_per_proc: 2\n");
    assert_int_equal(bench_job(b, one), JOB_STARTING);
    assert_string_equal(bench_waits(b, wide), "waits for 1 GPU on box1: job 1 and others hold it");
    bench_all_run(b, "box1");
    bench_exit(b, two, 0, 0, 0);
    assert_int_equal(bench_job(b, wide), JOB_STARTING);
}

static void two_slots_of_one_gpu_are_not_two_gpus(void **state)
{
    struct bench *b = *state;

    b->gpu_slots = 2;
    gpu_box(b, "box1", 2, NULL);
    int64_t first = bench_submit(b, "gpus_per_proc: 1\n"), other = bench_submit(b, "gpus_per_proc: 1\n");
    int64_t third = bench_submit(b, "gpus_per_proc: 1\n"), fourth = bench_submit(b, "gpus_per_proc: 1\n");
    bench_all_run(b, "box1");
    bench_exit(b, other, 0, 0, 0);
    bench_exit(b, fourth, 0, 0, 0); /* GPU 1 is free twice, GPU 0 is full */
    int64_t wide = bench_submit(b, "gpus_per_proc: 2\n");
    assert_int_equal(bench_job(b, wide), JOB_QUEUED);
    assert_string_equal(bench_waits(b, wide), "waits for free slots on more GPUs on box1");
    bench_exit(b, first, 0, 0, 0);
    assert_int_equal(bench_job(b, wide), JOB_STARTING);
    assert_int_equal(bench_job(b, third), JOB_RUNNING);
}

static void a_generation_has_one_nccl(void **state)
{
    struct bench *b = *state;

    gpu_box(b, "box1", 2, "2.28.9");
    gpu_box(b, "box2", 2, "2.27.3");
    gpu_box(b, "box3", 2, "none");
    int64_t job = bench_submit(b, "nodes: 2\ngpus_per_proc: 1\n" TRAIN);
    assert_string_equal(bench_waits(b, job),
                        "waits for 2 nodes with one version of NCCL: box1 has 2.28.9, box2 has 2.27.3");
    gpu_box(b, "box1", 2, NULL); /* an agent that started anew, and does not know yet */
    assert_non_null(strstr(bench_waits(b, job), "box1 has 2.28.9"));
    int64_t command = bench_submit(b, "nodes: 3\ngpus_per_proc: 1\n"); /* brings its own */
    assert_int_equal(bench_job(b, command), JOB_STARTING);
    gpu_box(b, "box4", 2, "2.27.3");
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    assert_string_equal(bench_node_of(b, job, 1), "box4");
}

static void without_a_plugin_gpus_train_nothing(void **state)
{
    struct bench *b = *state;

    gpu_box(b, "box1", 2, "none");
    int64_t job = bench_submit(b, "gpus_per_proc: 1\n" TRAIN);
    assert_string_equal(
        bench_waits(b, job),
        "waits for 1 node with 1 GPU each: the cluster has 0, 1 with GPUs and no plugin for them "
        "(ddp-trainer --plugin says why)");
}

static void growth_keeps_to_its_nccl(void **state)
{
    struct bench *b = *state;

    gpu_box(b, "box1", 1, "2.28.9");
    int64_t job =
        bench_submit(b, "nodes: \"1:3\"\ngpus_per_proc: 1\n" TRAIN "  snapshot: {dir: /out, every: 10}\n");
    bench_form(b, job);
    gpu_box(b, "box2", 1, "2.27.3");
    bench_pass_beating(b, 60000, "box1 box2");
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_NONE);
    gpu_box(b, "box3", 1, "2.28.9");
    bench_pass_beating(b, 20000, "box1 box2 box3");
    assert_true(bench_said(b, "resize to 2 nodes: box3 joins"));
}

/* device: auto means GPUs where the cluster has some: what runs on CPUs would go on with those. */
static void no_job_stops_to_grow_on_what_it_leaves(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, "device: auto\nnodes: \"1:2\"\n");
    bench_form(b, job);
    gpu_box(b, "box2", 1, "2.28.9");
    bench_submit(b, "gpus_per_proc: 1\n"); /* has the only GPU */
    bench_pass_beating(b, 60000, "box1 box2");
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_NONE);
    bench_hello(b, "box2", "box2", 4, 0); /* no GPUs any more: its CPUs are what the job may have */
    bench_all_run(b, "box2");
    bench_pass_beating(b, 20000, "box1 box2");
    assert_true(bench_said(b, "resize to 2 nodes: box2 joins"));
    assert_true(bench_said(b, "box2 offers 0 GPUs, 1 before"));
    assert_false(bench_said(b, "box2 offers 1 GPU"));
}

static void leases_outlive_the_coordinator(void **state)
{
    struct bench *b = *state;
    struct core_wish wish;
    struct err e;

    b->gpu_slots = 2;
    gpu_box(b, "box1", 1, NULL);
    bench_form(b, bench_submit(b, "gpus_per_proc: 1\n"));
    bench_restart(b);
    bench_node(b, "box2", 2);
    /* box1 has not said hello yet, and has room for two on its GPU: they are not for CPUs */
    int64_t two = bench_submit(b, "device: auto\nprocs_per_node: 2\n");
    assert_int_equal(bench_job(b, two), JOB_QUEUED);
    bench_hello(b, "box1", "box1", 4, 1);
    bench_all_run(b, "box1");
    assert_string_equal(bench_waits(b, two), "waits for 1 GPU on box1: job 1 holds it");
    int64_t one = bench_submit(b, "device: auto\npriority: 1\n");
    assert_int_equal(bench_job(b, one), JOB_STARTING); /* the other half */
    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.group_count, 2);
    core_wish_release(&wish);
}

static void a_job_that_leaves_its_gpus_says_so(void **state)
{
    struct bench *b = *state;

    gpu_box(b, "box1", 1, NULL);
    bench_node(b, "box2", 1);
    int64_t job = bench_submit(b, "device: auto\n");
    bench_form(b, job);
    assert_string_equal(bench_node_of(b, job, 0), "box1");
    bench_pass_beating(b, 80000, "box2"); /* box1 is lost, and so is its lease */
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    assert_true(bench_said(b, "goes on with CPUs, since too few GPUs are there: ddpctl restart 1 once"));
    bench_all_run(b, "box2");
    gpu_box(b, "box1", 1, NULL);
    assert_int_equal(bench_restart_job(b, job), ERR_OK);
    bench_exit(b, job, 0, 0, 15);
    assert_string_equal(bench_node_of(b, job, 0), "box1");
}

static void who_computes_otherwise_is_told(void **state)
{
    struct bench *b = *state;

    b->plugin = "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0";
    gpu_box(b, "box1", 4, "2.28.9");
    gpu_box(b, "box2", 4, "2.28.9");
    bench_submit(b, "nodes: 2\ngpus_per_proc: 1\n" TRAIN);
    bench_operator(b, CORE_UNDRAIN, "box1"); /* the bench reads the events with it */
    assert_false(bench_said(b, "trains with"));
    b->plugin = "CUDA 13.0, NCCL 2.28.9";
    gpu_box(b, "box3", 4, "2.28.9");
    gpu_box(b, "box4", 1, "2.28.9");
    bench_submit(b, "nodes: 3\ngpus_per_proc: 1\n"); /* a command's libraries are its own */
    bench_operator(b, CORE_UNDRAIN, "box1");
    assert_false(bench_said(b, "trains with"));
    int64_t job = bench_submit(b, "nodes: 3\ngpus_per_proc: 1\n" TRAIN);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    bench_operator(b, CORE_UNDRAIN, "box1");
    assert_true(bench_said(
        b, "box1 trains with CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0, box3 with CUDA 13.0, NCCL 2.28.9"));
}

static void beat_with(struct bench *b, uint64_t session, const struct core_gpu *gpu)
{
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = session};

    event.heartbeat.gpus = gpu;
    event.heartbeat.gpu_count = 1;
    core_event(b->core, &event, b->now, &b->out);
}

static void workers_of_a_sick_gpu_go_on_those_of_a_lost_one_do_not(void **state)
{
    struct bench *b = *state;
    struct core_gpu gpu = {.uuid = (char *)"GPU-box1-1", .index = 1, .problem = (char *)"Xid 63 at 14:02"};
    uint64_t session = bench_hello(b, "box1", "i", 1, 2);

    bench_facts(b, "box1", NULL, 0);
    int64_t first = bench_submit(b, "gpus_per_proc: 1\n"), job = bench_submit(b, "gpus_per_proc: 1\n");
    bench_all_run(b, "box1");
    beat_with(b, session, &gpu);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_NONE);
    gpu.lost = true;
    gpu.problem = (char *)"Xid 79 at 14:03";
    beat_with(b, session, &gpu);
    assert_int_equal(bench_stop(b, job, 0), CORE_STOP_TERM);
    assert_int_equal(bench_stop(b, first, 0), CORE_STOP_NONE);
    bench_operator(b, CORE_UNDRAIN, "box1"); /* the bench reads the events with it */
    assert_true(bench_said(b, "box1 gpu1 of rank 0: Xid 63 at 14:02"));
    assert_true(bench_said(b, "box1 gpu1: Xid 79 at 14:03"));
}

static void undrain_pardons_the_gpus(void **state)
{
    struct bench *b = *state;

    bench_hello(b, "box1", "i", 1, 2);
    bench_facts(b, "box1", NULL, 0);
    bench_operator(b, CORE_UNDRAIN, "box1");
    assert_int_equal(bench_effects(b, EFFECT_PARDON), 1);
}

static void no_port_is_used_again_soon(void **state)
{
    struct bench *b = *state;
    int ports[3];

    bench_node(b, "box1", 4);
    for (int i = 0; i < 3; i++)
        ports[i] = bench_generation(b, bench_submit(b, ""))->master_port;
    assert_in_range(ports[0], 29700, 29703);
    assert_int_not_equal(ports[0], ports[1]);
    assert_int_not_equal(ports[1], ports[2]);
    assert_int_not_equal(ports[0], ports[2]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_ranks_or_none),
        TEST(priority_then_age),
        TEST(a_blocked_head_is_not_starved),
        TEST(small_jobs_run_where_the_head_does_not_wait),
        TEST(no_place_is_kept_on_a_node_that_may_never_work),
        TEST(a_job_too_big_for_the_cluster_blocks_nobody),
        TEST(elastic_jobs_take_what_is_there),
        TEST(a_world_divides_its_shards),
        TEST(a_world_of_unequal_nodes_divides_too),
        TEST(no_world_that_divides_is_waited_for),
        TEST(a_layout_is_repeated),
        TEST(a_recovering_job_keeps_its_places),
        TEST(gpus_are_leased_by_uuid),
        TEST(a_sick_gpu_is_not_leased),
        TEST(workers_share_gpus_evenly),
        TEST(two_slots_of_one_gpu_are_not_two_gpus),
        TEST(a_generation_has_one_nccl),
        TEST(without_a_plugin_gpus_train_nothing),
        TEST(growth_keeps_to_its_nccl),
        TEST(no_job_stops_to_grow_on_what_it_leaves),
        TEST(leases_outlive_the_coordinator),
        TEST(a_job_that_leaves_its_gpus_says_so),
        TEST(who_computes_otherwise_is_told),
        TEST(workers_of_a_sick_gpu_go_on_those_of_a_lost_one_do_not),
        TEST(undrain_pardons_the_gpus),
        TEST(no_port_is_used_again_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
