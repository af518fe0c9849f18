/* Rounds of diloco against a plain reference in double precision, and what they must be equal to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/trainer/member/sync/diloco_reference.h"
#include "tests/unit/trainer/member/sync/plain_device.h"

/* A code may differ where a float lies next to the middle between two codes, and all codes of a block where its scale
 * does: of a few elements, by little. */
static void rounds_check(const struct ranks *layout, const struct quadratic *u)
{
    double want[PARAMS];
    float got[PARAMS];
    uint64_t hash;
    int odd = 0;

    quadratic_run(layout, u, got, &hash);
    diloco_reference(want, layout->world, u);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = quadratic_tensors[t].offset;
             i < quadratic_tensors[t].offset + quadratic_tensors[t].count; i++) {
            double away = fabs((double)got[i] - want[i]), size = 1 + fabs(want[i]);

            if (away > (u->spec.wire == WIRE_FP32 ? 1e-6 : 0.02) * size)
                fail_msg("world %d, wire %d, element %zu: %.9g, not %.9g", layout->world, (int)u->spec.wire,
                         i, (double)got[i], want[i]);
            odd += away > 1e-6 * size;
        }
    if (odd > PARAMS / 8)
        fail_msg("world %d, wire %d: %d elements differ", layout->world, (int)u->spec.wire, odd);
}

/* Memory is what a large model lacks first. */
static void a_job_has_the_arrays_that_it_needs(void **state)
{
    struct sync_array out[SYNC_MAX_ARRAYS];
    struct sync_spec average = {.type = SYNC_AVERAGE, .every = 16}, each = {.type = SYNC_AVERAGE, .every = 1};
    struct quadratic u = quadratic_setup(WIRE_FP32);

    (void)state;
    assert_int_equal(sync_arrays(&each, out), 1); /* the last mean, with which survivors of a loss go on */
    assert_false(out[0].kept);
    assert_int_equal(sync_arrays(&average, out), 1);
    assert_false(out[0].kept); /* a snapshot holds the shared model once, as its parameters */
    assert_int_equal(sync_arrays(&u.spec, out), 2);
    assert_string_equal(out[1].name, "outer_momentum");
    u.spec.outer_momentum = 0;
    assert_int_equal(sync_arrays(&u.spec, out), 1);
    u.spec.wire = WIRE_INT4;
    assert_int_equal(sync_arrays(&u.spec, out), 2);
    assert_true(out[1].kept && out[1].own && !strcmp(out[1].name, "feedback"));
    u.spec.overlap = 1;
    assert_int_equal(sync_arrays(&u.spec, out), 3);
}

static void rounds_are_those_of_the_reference(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l += LAYOUT_STEP)
        for (size_t k = 0; k < WIRES; k++) {
            struct quadratic u = quadratic_setup(quadratic_wires[k]);

            rounds_check(&quadratic_layouts[l], &u);
            u.spec.outer_schedule = OUTER_TRAPEZOID;
            rounds_check(&quadratic_layouts[l], &u);
        }
}

/* A member without samples sends nothing that counts, and keeps what earlier rounds have lost. */
static void rounds_without_samples_are_those_of_the_reference(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l += LAYOUT_STEP)
        for (size_t k = 0; k < WIRES; k++) {
            struct quadratic u = quadratic_setup(quadratic_wires[k]);

            u.idle = true;
            rounds_check(&quadratic_layouts[l], &u);
            u.spec.overlap = u.thread = 1;
            rounds_check(&quadratic_layouts[l], &u);
        }
}

/* quadratic.c checks the vote of the last rank, which has no samples in some rounds, after each exchange. */
static void a_vote_of_a_member_without_samples_counts(void **state)
{
    (void)state;
    for (size_t l = 1; l < LAYOUTS; l += LAYOUT_STEP)
        for (int far = 0; far <= 1; far++) {
            struct quadratic u = {
                .spec = {.type = SYNC_AVERAGE, .every = EVERY}, .idle = true, .far = far != 0};
            float got[PARAMS];
            uint64_t hash;

            quadratic_run(&quadratic_layouts[l], &u, got, &hash);
        }
}

/* Members at different speeds: each counts by its samples. */
static void rounds_of_unlike_steps_are_those_of_the_reference(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l += LAYOUT_STEP)
        for (size_t k = 0; k < WIRES; k++) {
            struct quadratic u = quadratic_setup(quadratic_wires[k]);

            u.spec.every_ms = 1000;
            u.timed = true;
            rounds_check(&quadratic_layouts[l], &u);
            u.spec.outer_schedule = OUTER_TRAPEZOID; /* by the rank that has made most steps */
            rounds_check(&quadratic_layouts[l], &u);
            if (quadratic_wires[k] != WIRE_FP32)
                continue;
            u.spec.outer_lr = 1; /* the plain mean */
            u.spec.outer_momentum = 0;
            rounds_check(&quadratic_layouts[l], &u);
        }
}

static void overlap_and_fragments_are_those_of_the_reference(void **state)
{
    static const double mixes[] = {0, 0.25, 0.5};

    (void)state;
    for (size_t l = 0; l < LAYOUTS; l += LAYOUT_STEP)
        for (size_t k = 0; k < WIRES; k++)
            for (int way = 1; way < 8; way++) {
                struct quadratic u = quadratic_setup(quadratic_wires[k]);

                u.spec.mix = mixes[(k + (size_t)way) % ARRAY_LEN(mixes)]; /* each with each format */
                u.spec.overlap = way & 1;
                u.spec.fragments = way & 2 ? 3 : 1;
                u.spec.warm = way & 4 ? 5 : 0;
                u.spec.outer_schedule = (k + (size_t)way) % 2 ? OUTER_TRAPEZOID : OUTER_CONSTANT;
                u.thread = way & 1;
                rounds_check(&quadratic_layouts[l], &u);
            }
}

static void without_outer_momentum_it_is_averaging_bit_for_bit(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l += LAYOUT_STEP) {
        struct quadratic u = quadratic_setup(WIRE_FP32),
                         average = {.spec = {.type = SYNC_AVERAGE, .every = EVERY}};
        float got[PARAMS], want[PARAMS];
        uint64_t hash;

        u.spec.outer_lr = 1;
        u.spec.outer_momentum = 0;
        quadratic_run(&quadratic_layouts[l], &u, got, &hash);
        quadratic_run(&quadratic_layouts[l], &average, want, &hash);
        assert_memory_equal(got, want, sizeof(got));
    }
}

/* Also where the sum is that of deltas. */
static void the_mean_of_deltas_is_the_mean(void **state)
{
    struct quadratic u = quadratic_setup(WIRE_FP32),
                     average = {.spec = {.type = SYNC_AVERAGE, .every = EVERY}};
    float got[PARAMS], want[PARAMS];
    uint64_t hash;

    (void)state;
    u.spec.outer_lr = 1;
    u.spec.outer_momentum = 1e-30;
    quadratic_run(&quadratic_layouts[3], &u, got, &hash);
    quadratic_run(&quadratic_layouts[3], &average, want, &hash);
    for (size_t i = 0; i < PARAMS; i++)
        assert_true(fabs((double)got[i] - (double)want[i]) < 1e-6);
}

static void averaging_each_step_is_all_reduce(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l += LAYOUT_STEP) {
        struct quadratic average = {.spec = {.type = SYNC_AVERAGE, .every = 1}};
        struct quadratic all = {.spec = {.type = SYNC_ALLREDUCE}};
        float got[PARAMS], want[PARAMS];
        uint64_t hash;

        quadratic_run(&quadratic_layouts[l], &average, got, &hash);
        quadratic_run(&quadratic_layouts[l], &all, want, &hash);
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = quadratic_tensors[t].offset;
                 i < quadratic_tensors[t].offset + quadratic_tensors[t].count; i++)
                assert_true(fabs((double)got[i] - (double)want[i]) < 1e-5);
    }
}

static void two_members_with_equal_data_are_one(void **state)
{
    (void)state;
    for (size_t k = 0; k < WIRES; k++) {
        struct quadratic u = quadratic_setup(quadratic_wires[k]);
        float one[PARAMS], two[PARAMS];
        uint64_t hash[2];

        u.same_data = true;
        quadratic_run(&quadratic_layouts[0], &u, one, &hash[0]);
        quadratic_run(&quadratic_layouts[1], &u, two, &hash[1]);
        assert_memory_equal(one, two, sizeof(one));
    }
}

static void memory_of_a_device_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t l = 1; l < LAYOUTS; l += LAYOUT_STEP)
        for (size_t k = 0; k < WIRES; k++) {
            struct quadratic u = quadratic_setup(quadratic_wires[k]);
            float got[PARAMS];
            uint64_t near, far;

            u.spec.overlap = u.thread = (int)(l & 1);
            u.idle = k & 1;
            quadratic_run(&quadratic_layouts[l], &u, got, &near);
            u.far = true;
            quadratic_run(&quadratic_layouts[l], &u, got, &far);
            assert_true(near == far);
        }
}

static void a_resumed_round_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < WIRES; k++)
        for (int fragments = 1; fragments <= 3; fragments += 2) {
            struct quadratic u = quadratic_setup(quadratic_wires[k]);
            float got[PARAMS];
            uint64_t whole, cut;

            u.spec.fragments = fragments;
            u.same_data = fragments > 1; /* a snapshot does not keep each fragment's samples */
            quadratic_run(&quadratic_layouts[2], &u, got, &whole);
            for (u.reopen_after = 11; u.reopen_after <= 15; u.reopen_after++) {
                quadratic_run(&quadratic_layouts[2], &u, got, &cut);
                assert_true(whole == cut);
            }
        }
}

static void codes_are_a_part_of_the_bytes(void **state)
{
    struct quadratic all = {.spec = {.type = SYNC_ALLREDUCE}}, coded = quadratic_setup(WIRE_INT4);
    struct ranks two = {.world = 2, .node_of = {0, 1}};
    float out[PARAMS];
    uint64_t hash;
    int much, little;

    (void)state;
    much = quadratic_run(&two, &all, out, &hash);
    little = quadratic_run(&two, &coded, out, &hash);
    assert_true(little * 10 <
                much); /* 38 steps and 7 exchanges of an eighth; words and headers are most of it here */
}

/* Two legs of (n - 1) / n of the codes, whatever the number of ranks; fp32 takes two legs of floats. */
static void bytes_do_not_grow_with_the_ranks(void **state)
{
    (void)state;
    for (size_t k = 1; k < WIRES; k++) {
        struct quadratic u = quadratic_setup(quadratic_wires[k]);
        struct ranks three = {.world = 3, .node_of = {0, 1, 2}},
                     five = {.world = 5, .node_of = {0, 1, 2, 3, 4}};
        /* Seven exchanges of 17 blocks; words, headers and padding are most of the rest. */
        int code = quadratic_wires[k] == WIRE_BF16   ? 128
                   : quadratic_wires[k] == WIRE_INT8 ? 66
                                                     : 34,
            rest = 7 * 5 * 300;
        float out[PARAMS];
        uint64_t hash;

        assert_in_range(quadratic_run(&three, &u, out, &hash), 1, 7 * 17 * code * 2 * 2 / 3 + rest);
        assert_in_range(quadratic_run(&five, &u, out, &hash), 1, 7 * 17 * code * 2 * 4 / 5 + rest);
    }
}

enum { BYTES_COUNT = (1 << 18) + TAIL, BYTES_STEPS = 50 };

static void count_bytes(struct ranks *r, int rank)
{
    const struct sync_spec *spec = r->arg;
    struct coll_group *group = ranks_open(r, rank);
    struct sync_config config = {.spec = *spec,
                                 .rank = rank,
                                 .world_size = r->world,
                                 .count = BYTES_COUNT,
                                 .tail = TAIL,
                                 .device = &plain_device,
                                 .thread = 0};
    struct sync_array own[SYNC_MAX_ARRAYS];
    size_t count = sync_arrays(spec, own);
    struct coll_stats stats;
    struct sync *sync;
    struct err e = {0};

    RANK_OK(coll_alloc(group, BYTES_COUNT, &config.params, &e), &e);
    RANK_OK(coll_alloc(group, BYTES_COUNT, &config.grads, &e), &e);
    for (size_t i = 0; i < count; i++)
        RANK_OK(coll_alloc(group, BYTES_COUNT, &config.arrays[i], &e), &e);
    RANK_OK(sync_open(&sync, group, &config, &e), &e);
    sync_start(sync);
    for (int step = 0; step < BYTES_STEPS; step++) {
        sync_at_step(sync, step, BYTES_STEPS);
        for (size_t i = 0; i < BYTES_COUNT; i++)
            config.grads[i] = (float)(i % 7);
        RANK_OK(sync_before_step(sync, &e), &e);
        for (size_t i = 0; i < BYTES_COUNT - TAIL; i++)
            config.params[i] -= (float)(rank + 1) * RATE * config.grads[i];
        RANK_OK(sync_after_step(sync, 1, r->world, &e), &e);
    }
    RANK_CHECK(sync_settled(sync));
    coll_get_stats(group, &stats);
    r->shared->code[rank] = (int)stats.bytes;
    sync_close(sync);
    coll_close(group);
}

/* What the transport of rank 0 has sent in 50 steps of a model of 262,144 parameters, with all other data of an
 * exchange. */
static int bytes_of_50_steps(const struct sync_spec *spec)
{
    struct ranks r = {.world = 4, .node_of = {0, 1, 2, 3}, .arg = spec, .pairs = sync_wants_pairs(spec, 4)};

    assert_true(ranks_run(&r, count_bytes));
    int bytes = r.shared->code[0];
    ranks_release(&r);
    return bytes;
}

static void int4_every_50_steps_sends_a_350th_of_all_reduce(void **state)
{
    struct sync_spec all = {.type = SYNC_ALLREDUCE}, coded = quadratic_setup(WIRE_INT4).spec;
    int much, little;

    (void)state;
    coded.every = BYTES_STEPS;
    much = bytes_of_50_steps(&all);
    little = bytes_of_50_steps(&coded);
    printf("%d bytes by all-reduce, %d by diloco: %d times fewer\n", much, little, much / little);
    assert_true(much / little >= 350);
}

static void open_too_many_fragments(struct ranks *r, int rank)
{
    struct sync_spec spec = quadratic_setup(WIRE_FP32).spec;
    struct member m = {.group = ranks_open(r, rank)};
    struct sync_array own[SYNC_MAX_ARRAYS];
    struct err e = {0};

    spec.every = spec.fragments = 100;
    m.config = (struct sync_config){.spec = spec,
                                    .rank = rank,
                                    .world_size = r->world,
                                    .count = COUNT,
                                    .tail = TAIL,
                                    .tensors = quadratic_tensors,
                                    .tensor_count = TENSORS,
                                    .device = &plain_device};
    RANK_OK(coll_alloc(m.group, COUNT, &m.config.params, &e), &e);
    RANK_OK(coll_alloc(m.group, COUNT, &m.config.grads, &e), &e);
    for (size_t i = 0; i < sync_arrays(&spec, own); i++)
        RANK_OK(coll_alloc(m.group, COUNT, &m.config.arrays[i], &e), &e);
    RANK_CHECK(sync_open(&m.sync, m.group, &m.config, &e) == ERR_INVALID_ARGUMENT);
    RANK_CHECK(strstr(e.msg, "can be divided into 5 parts at most: set sync.fragments to 5"));
    m.config.spec.fragments = 5;
    RANK_OK(sync_open(&m.sync, m.group, &m.config, &e), &e);
    sync_close(m.sync);
    coll_close(m.group);
}

static void too_many_fragments_are_refused_with_the_most_possible(void **state)
{
    struct ranks r = quadratic_layouts[0];

    (void)state;
    assert_true(ranks_run(&r, open_too_many_fragments));
    ranks_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_has_the_arrays_that_it_needs),
        cmocka_unit_test(rounds_are_those_of_the_reference),
        cmocka_unit_test(rounds_without_samples_are_those_of_the_reference),
        cmocka_unit_test(a_vote_of_a_member_without_samples_counts),
        cmocka_unit_test(rounds_of_unlike_steps_are_those_of_the_reference),
        cmocka_unit_test(overlap_and_fragments_are_those_of_the_reference),
        cmocka_unit_test(without_outer_momentum_it_is_averaging_bit_for_bit),
        cmocka_unit_test(the_mean_of_deltas_is_the_mean),
        cmocka_unit_test(averaging_each_step_is_all_reduce),
        cmocka_unit_test(two_members_with_equal_data_are_one),
        cmocka_unit_test(memory_of_a_device_gives_the_same_bits),
        cmocka_unit_test(a_resumed_round_gives_the_same_bits),
        cmocka_unit_test(codes_are_a_part_of_the_bytes),
        cmocka_unit_test(bytes_do_not_grow_with_the_ranks),
        cmocka_unit_test(int4_every_50_steps_sends_a_350th_of_all_reduce),
        cmocka_unit_test(too_many_fragments_are_refused_with_the_most_possible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
