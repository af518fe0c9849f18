/* The model of `ddpctl plan`, beside its equations (docs/explanation/plan.md) worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/plan/gpu_table.h"
#include "base/plan/step_model.h"

/* 10 M parameters: 40 MB, ten buckets. A rank's step: 1e12 operations. */
static const struct plan_sizes sizes = {.parameters = 10e6,
                                        .arrays = 10e6,
                                        .samples = 100,
                                        .tokens = 50,
                                        .flops = 1e12,
                                        .gathered_bytes = 40e6,
                                        .update_floats = 7};

static const struct model_row {
    const char *what;
    struct plan_machine machine;
    struct sync_spec sync;
    enum shard_type shard;
    double compute_s, exchange_s, exposed_s;
} rows[] = {
    {"one rank exchanges nothing",
     {.nodes = 1, .ranks = 1, .rate = 1e13, .memory_rate = 1e10},
     {.type = SYNC_DILOCO, .every = 50, .wire = WIRE_INT4},
     SHARD_NONE,
     0.1 + 0.028,
     0,
     0},
    {"ranks on one node add up themselves, and nothing is hidden",
     {.nodes = 1, .ranks = 2, .step_s = 0.2, .memory_rate = 1e10, .inside = 1e10},
     {.type = SYNC_ALLREDUCE},
     SHARD_NONE,
     0.2,
     0.004,
     0.004},
    {"nodes with two ranks: first inside, then around the ring, with ten buckets",
     {.nodes = 4, .ranks = 8, .step_s = 0.2, .inside = 1e10, .link = 1e9, .hop_s = 1e-4},
     {.type = SYNC_ALLREDUCE},
     SHARD_NONE,
     0.2,
     0.004 + 0.06e9 / 0.95e9 + 0.006,
     (0.004 + 0.06e9 / 0.95e9 + 0.006) * 1048576 / 10e6},
    {"a slow link hides half of a step at most",
     {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6},
     {.type = SYNC_ALLREDUCE},
     SHARD_NONE,
     0.2,
     40 / 0.95,
     40 / 0.95 - 0.1},
    {"gradients as bf16 are half of the bytes",
     {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6},
     {.type = SYNC_ALLREDUCE, .wire = WIRE_BF16},
     SHARD_NONE,
     0.2,
     20 / 0.95,
     20 / 0.95 - 0.1},
    {"parameters are gathered in fp32",
     {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6, .memory_rate = 1e10},
     {.type = SYNC_ALLREDUCE, .wire = WIRE_BF16},
     SHARD_OPTIMIZER,
     0.2 - 0.014,
     30 / 0.95,
     30 / 0.95 - 0.093},
    {"parameters of a divided optimizer are gathered when nothing else runs",
     {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6, .memory_rate = 1e10},
     {.type = SYNC_ALLREDUCE},
     SHARD_OPTIMIZER,
     0.2 - 0.014,
     40 / 0.95,
     40 / 0.95 - 0.093},
    {"rounds of 10 steps in fp32",
     {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6},
     {.type = SYNC_AVERAGE, .every = 10},
     SHARD_NONE,
     0.2,
     40 / 0.95,
     4 / 0.95},
    {"in codes each rank of a node sends its own model",
     {.nodes = 2, .ranks = 4, .step_s = 0.2, .link = 1e6, .inside = 1e12},
     {.type = SYNC_DILOCO, .every = 10, .wire = WIRE_INT4},
     SHARD_NONE,
     0.2,
     40 / 0.95 + 4e-5,
     (40 / 0.95 + 4e-5) * 2 * (0.5 + 2.0 / 64) / 4 / 10},
    {"an exchange that overlaps with two steps",
     {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e7},
     {.type = SYNC_DILOCO, .every = 10, .overlap = 2},
     SHARD_NONE,
     0.2,
     4 / 0.95,
     (4 / 0.95 - 0.4) / 10},
    {"a round of 2 s has ten steps",
     {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6},
     {.type = SYNC_AVERAGE, .every = 500, .every_ms = 2000},
     SHARD_NONE,
     0.2,
     40 / 0.95,
     4 / 0.95},
    {"a ring through GPUs is as slow as its slowest kind of link",
     {.nodes = 2,
      .ranks = 16,
      .gpu = true,
      .rate = 1e13,
      .memory_rate = 1e12,
      .inside = 4e11,
      .link = 5e10,
      .hop_s = 1e-5},
     {.type = SYNC_ALLREDUCE},
     SHARD_NONE,
     0.1 + 0.28e-3,
     75e6 / (0.95 * 5e10) + 2e-4,
     (75e6 / (0.95 * 5e10) + 2e-4) * 1048576 / 10e6},
};

static void equations(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct model_row *row = &rows[i];
        struct plan_step p;
        plan_step(&sizes, &row->machine, &row->sync, row->shard, &p);
        print_message("%s\n", row->what);
        assert_true(fabs(p.compute_s - (row->compute_s)) < 1e-9);
        assert_true(fabs(p.exchange_s - (row->exchange_s)) < 1e-9);
        assert_true(fabs(p.exposed_s - (row->exposed_s)) < 1e-9);
        assert_true(fabs(p.step_s - (row->compute_s + row->exposed_s)) < 1e-9);
        assert_true(fabs(p.per_second * p.step_s - (5000)) < 1e-6);
    }
    /* Parameters of which a half are matrices that travel as bf16. */
    const struct plan_machine two = {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6};
    struct plan_sizes packed = sizes;
    struct plan_step p;
    packed.gathered_bytes = 30e6;
    plan_step(&packed, &two, &(struct sync_spec){.type = SYNC_ALLREDUCE}, SHARD_OPTIMIZER, &p);
    assert_true(fabs(p.exchange_s - 35 / 0.95) < 1e-9);
}

/* Eight layers; 10 MB come before the second one. Parameters come beside the next forward pass, a third of a micro-batch's
 * passes, in three of four steps. The sums of gradients are half of the all-reduce, of which backward hides half of the step. */
static void parameters_come_beside_the_forward_pass(void **state)
{
    const struct sync_spec sync = {.type = SYNC_ALLREDUCE};
    struct plan_sizes beside = sizes;
    (void)state;
    beside.gathered_first_bytes = 10e6;
    beside.gathered_beside = 0.75;
    beside.layers = 8;
    for (int nodes = 2; nodes <= 4; nodes++)
        for (int micro = 1; micro <= 4; micro += 3)
            for (double link = 1e7; link < 1e10; link *= 10) {
                const struct plan_machine m = {
                    .nodes = nodes, .ranks = nodes, .step_s = 0.2, .link = link, .memory_rate = 1e10};
                const double update = 0.028 / nodes, compute = 0.2 - 0.028 + update;
                const double half = 40e6 * (nodes - 1) / nodes / 0.95 / link; /* one half of an all-reduce */
                const double pieces = nodes > 2 ? 40e6 / 0.95 / link : half;
                const double first = 10e6 / 0.95 / link, forward = 0.172 / 3 / micro;
                const double waits = fmax(first, pieces - forward * (nodes > 2 ? 7.0 / 8 : 3.0 / 8));
                const double hidden = fmin((1 - 1048576 / 10e6) * half, compute / 2);
                struct plan_step p;
                beside.micro_batches = micro;
                plan_step(&beside, &m, &sync, SHARD_OPTIMIZER, &p);
                assert_true(fabs(p.exchange_s - 2 * half) < 1e-9);
                assert_true(fabs(p.exposed_s - (half - hidden + 0.75 * waits + 0.25 * half)) < 1e-9);
            }
    /* Ranks of one node add up and copy themselves, and nothing runs beside. */
    const struct plan_machine one = {
        .nodes = 1, .ranks = 2, .step_s = 0.2, .memory_rate = 1e10, .inside = 1e10};
    struct plan_step p;
    plan_step(&beside, &one, &sync, SHARD_OPTIMIZER, &p);
    assert_true(fabs(p.exposed_s - 0.004) < 1e-9);
}

/* Without NCCL, the passes of GPUs do not overlap with exchanges. */
static void sums_through_the_host_hide_nothing(void **state)
{
    const struct sync_spec sync = {.type = SYNC_ALLREDUCE};
    struct plan_machine m = {
        .nodes = 4, .ranks = 4, .gpu = true, .step_s = 0.2, .link = 1e9, .memory_rate = 1e10};
    struct plan_sizes beside = sizes;
    struct plan_step nccl, host;
    (void)state;
    beside.gathered_first_bytes = 10e6;
    beside.gathered_beside = 0.75;
    beside.layers = 8;
    beside.micro_batches = 1;
    for (enum shard_type shard = SHARD_NONE; shard <= SHARD_OPTIMIZER; shard++) {
        m.host_sums = false;
        plan_step(&beside, &m, &sync, shard, &nccl);
        m.host_sums = true;
        plan_step(&beside, &m, &sync, shard, &host);
        assert_true(nccl.exposed_s < 0.75 * nccl.exchange_s);
        assert_true(fabs(host.exchange_s - nccl.exchange_s) < 1e-9);
        assert_true(fabs(host.exposed_s - host.exchange_s) < 1e-9);
    }
}

static void sizes_as_text(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct plan_sizes back = {0};
    struct err e;
    (void)state;
    plan_sizes_print(&sizes, &text);
    assert_int_equal(plan_sizes_parse(text.data, text.len, &back, &e), ERR_OK);
    assert_memory_equal(&back, &sizes, sizeof(sizes));
    assert_int_equal(plan_sizes_parse("{\"parameters\": 3}", 17, &back, &e), ERR_DATA_LOSS);
    assert_string_equal(e.msg, "the sizes of a job lack 'arrays'");
    assert_int_equal(plan_sizes_parse("3", 1, &back, &e), ERR_DATA_LOSS);
}

static void gpus(void **state)
{
    (void)state;
    assert_null(gpu_find("h100"));
    assert_string_equal(gpu_find("h200")->about, "H200 SXM, 141 GB");
    for (const struct gpu_figures *g = gpu_table; g->name; g++)
        assert_true(g->bf16 > g->fp32 && g->memory > 0 && g->memory_rate > g->inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equations),
        cmocka_unit_test(parameters_come_beside_the_forward_pass),
        cmocka_unit_test(sums_through_the_host_hide_nothing),
        cmocka_unit_test(sizes_as_text),
        cmocka_unit_test(gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
