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

/* 10 M parameters: 40 MB, ten buckets of 4 MiB. A rank's step: 1e12 operations. */
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
     0.001 + 0.015e9 / 0.95e9 + 0.0006}, /* the last bucket */
    {"on a slow link, three quarters of backward are hidden",
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
     30 / 0.95 - 0.086},
    {"parameters of a divided optimizer are gathered when nothing else runs",
     {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6, .memory_rate = 1e10},
     {.type = SYNC_ALLREDUCE},
     SHARD_OPTIMIZER,
     0.2 - 0.014,
     40 / 0.95,
     40 / 0.95 - 0.086},
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
     18.75e6 / (0.95 * 5e10) + 2e-5},
};

/* Three quarters of the gradients are there after a quarter of backward, and the rest at its end. Each end has a part of each bucket. In
 * four pieces of parameters only one end sends at a time, or each of two. */
static struct plan_sizes sizes_cut(const struct plan_machine *m, bool half, enum shard_type shard,
                                   struct plan_exchange *buckets, struct plan_exchange *pieces)
{
    const double ends = (double)(m->gpu ? m->ranks : m->nodes), rounds = shard == SHARD_OPTIMIZER ? 1 : 2;
    struct plan_sizes s = sizes;
    for (int i = 0; i < 2; i++) {
        const double bytes = (i ? 10e6 : 30e6) / (half ? 2 : 1);
        buckets[i] = (struct plan_exchange){i ? 1 : 0.25, bytes, rounds * (ends - 1) / ends * bytes};
    }
    for (int i = 0; i < 4; i++)
        pieces[i] = (struct plan_exchange){i / 4.0, 10e6, ends > 2 ? 10e6 : 5e6};
    s.buckets = buckets;
    s.bucket_count = 2;
    s.pieces = pieces;
    s.piece_count = 4;
    return s;
}

static void equations(void **state)
{
    struct plan_exchange buckets[2], pieces[4];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct model_row *row = &rows[i];
        struct plan_step p;
        const struct plan_sizes cut =
            sizes_cut(&row->machine, row->sync.wire == WIRE_BF16, row->shard, buckets, pieces);
        plan_step(&cut, &row->machine, &row->sync, row->shard, &p);
        print_message("%s\n", row->what);
        assert_true(fabs(p.compute_s - (row->compute_s)) < 1e-9);
        assert_true(fabs(p.exchange_s - (row->exchange_s)) < 1e-9);
        assert_true(fabs(p.exposed_s - (row->exposed_s)) < 1e-9);
        assert_true(fabs(p.step_s - (row->compute_s + row->exposed_s)) < 1e-9);
        assert_true(fabs(p.per_second * p.step_s - (5000)) < 1e-6);
    }
    /* Parameters of which a half are matrices that travel as bf16. */
    const struct plan_machine two = {.nodes = 2, .ranks = 2, .step_s = 0.2, .link = 1e6};
    struct plan_sizes packed = sizes_cut(&two, false, SHARD_OPTIMIZER, buckets, pieces);
    struct plan_step p;
    packed.gathered_bytes = 30e6;
    plan_step(&packed, &two, &(struct sync_spec){.type = SYNC_ALLREDUCE}, SHARD_OPTIMIZER, &p);
    assert_true(fabs(p.exchange_s - 35 / 0.95) < 1e-9);
}

/* Parameters come beside the next forward pass, a third of a micro-batch's passes, in three of four steps. */
static void parameters_come_beside_the_forward_pass(void **state)
{
    const struct sync_spec sync = {.type = SYNC_ALLREDUCE};
    struct plan_exchange buckets[2], pieces[4];
    (void)state;
    for (int nodes = 2; nodes <= 4; nodes++)
        for (int micro = 1; micro <= 4; micro += 3)
            for (double link = 1e7; link < 1e10; link *= 10) {
                const struct plan_machine m = {
                    .nodes = nodes, .ranks = nodes, .step_s = 0.2, .link = link, .memory_rate = 1e10};
                struct plan_sizes beside = sizes_cut(&m, false, SHARD_OPTIMIZER, buckets, pieces);
                const double half = 40e6 * (nodes - 1) / nodes / 0.95 / link; /* one half of an all-reduce */
                const double piece = pieces[0].link_bytes / 0.95 / link;
                const double forward = 0.172 / 3 / micro, backward = 2 * forward;
                const double waits = fmax(piece, 4 * piece - 0.75 * forward);
                const double last = fmax(backward, 0.25 * backward + 0.75 * half) + 0.25 * half;
                struct plan_step p;
                beside.gathered_beside = 0.75;
                beside.micro_batches = micro;
                plan_step(&beside, &m, &sync, SHARD_OPTIMIZER, &p);
                assert_true(fabs(p.exchange_s - 2 * half) < 1e-9);
                assert_true(fabs(p.exposed_s - (last - backward + 0.75 * waits + 0.25 * half)) < 1e-9);
            }
    /* Ranks of one node add up and copy themselves, and nothing runs beside. */
    const struct plan_machine one = {
        .nodes = 1, .ranks = 2, .step_s = 0.2, .memory_rate = 1e10, .inside = 1e10};
    struct plan_sizes together = sizes_cut(&one, false, SHARD_OPTIMIZER, buckets, pieces);
    struct plan_step p;
    together.piece_count = 0;
    plan_step(&together, &one, &sync, SHARD_OPTIMIZER, &p);
    assert_true(fabs(p.exposed_s - 0.004) < 1e-9);
}

/* Without NCCL, the passes of GPUs do not overlap with exchanges. */
static void sums_through_the_host_hide_nothing(void **state)
{
    const struct sync_spec sync = {.type = SYNC_ALLREDUCE};
    struct plan_machine m = {
        .nodes = 4, .ranks = 4, .gpu = true, .step_s = 0.2, .link = 1e9, .memory_rate = 1e10};
    struct plan_exchange buckets[2], pieces[4];
    struct plan_step nccl, host;
    (void)state;
    for (enum shard_type shard = SHARD_NONE; shard <= SHARD_OPTIMIZER; shard++) {
        struct plan_sizes beside = sizes_cut(&m, false, shard, buckets, pieces);
        beside.gathered_beside = 0.75;
        beside.micro_batches = 1;
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
    struct plan_exchange buckets[2], pieces[4];
    const struct plan_machine m = {.nodes = 2, .ranks = 2};
    const struct plan_sizes cut = sizes_cut(&m, false, SHARD_OPTIMIZER, buckets, pieces);
    struct plan_sizes back = {0};
    struct err e;
    (void)state;
    plan_sizes_print(&cut, &text);
    assert_int_equal(plan_sizes_parse(text.data, text.len, &back, &e), ERR_OK);
    assert_memory_equal(&back, &cut, offsetof(struct plan_sizes, buckets));
    assert_int_equal(back.bucket_count, 2);
    assert_memory_equal(back.buckets, buckets, sizeof(buckets));
    assert_int_equal(back.piece_count, 4);
    assert_memory_equal(back.pieces, pieces, sizeof(pieces));
    plan_sizes_release(&back);
    char *piece = strstr(text.data, "\"link_bytes\"");
    assert_non_null(piece);
    piece[1] = 'x';
    assert_int_equal(plan_sizes_parse(text.data, text.len, &back, &e), ERR_DATA_LOSS);
    assert_string_equal(e.msg, "the sizes of a job lack 'buckets' or 'pieces'");
    assert_int_equal(plan_sizes_parse("{\"parameters\": 3}", 17, &back, &e), ERR_DATA_LOSS);
    assert_string_equal(e.msg, "the sizes of a job lack 'arrays'");
    assert_int_equal(plan_sizes_parse("3", 1, &back, &e), ERR_DATA_LOSS);
    assert_int_equal(plan_sizes_parse("{", 1, &back, &e), ERR_DATA_LOSS);
    assert_non_null(strstr(e.msg, "the sizes of a job: "));
    assert_null(strstr(e.msg + 1, "the sizes of a job"));
    assert_true(strlen(e.msg) > strlen("the sizes of a job: "));
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
