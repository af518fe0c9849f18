/* What a round of averaging or diloco says of itself: norm and agreement of known deltas, and the bytes it
 * took. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/member/ranks.h"
#include "tests/unit/trainer/member/sync/plain_device.h"
#include "trainer/member/sync/squares.h"
#include "trainer/member/sync/strategy.h"
#include "trainer/member/sync/wire.h"

/* A gap lies between the tensors, and 3 floats of tail behind them. */
static const struct sync_tensor tensors[] = {{0, 400}, {416, 101}};
enum { PARAMS = 528, TAIL = 3, COUNT = PARAMS + TAIL, EVERY = 2 };
#define TENSORS (sizeof(tensors) / sizeof(tensors[0]))

/* ---- rounds of known deltas */

enum deltas { EQUAL, OPPOSITE, ORTHOGONAL, NONE };
struct setup {
    struct sync_spec spec;
    struct device *device;
    enum deltas deltas;
    int64_t samples[2]; /* of rank 0 and of each other rank, in a step */
    double norm, agreement;
};

static float delta_of(enum deltas deltas, int rank, size_t i)
{
    switch (deltas) {
    case EQUAL:
        return 0.5f;
    case OPPOSITE:
        return rank % 2 ? -0.5f : 0.5f;
    case ORTHOGONAL: /* halves of the first tensor */
        return i < 400 && (int)(i % 2) == rank % 2 ? 0.5f : 0.0f;
    case NONE:
        break;
    }
    return 0.0f;
}

static bool near_to(double got, double want, double by)
{
    return isnan(want) ? isnan(got) : fabs(got - want) <= by;
}

struct member {
    struct coll_group *group;
    struct sync_config config;
    struct sync *sync;
    int64_t local, all; /* samples of a step */
};

static void member_open(struct ranks *r, int rank, const struct setup *u, struct member *m)
{
    struct sync_array own[SYNC_MAX_ARRAYS];
    size_t count = sync_arrays(&u->spec, own);
    struct err e = {0};

    *m = (struct member){.group = ranks_open(r, rank), .local = u->samples[rank > 0]};
    m->all = u->samples[0] + u->samples[1] * (r->world - 1);
    m->config = (struct sync_config){.spec = u->spec,
                                     .rank = rank,
                                     .world_size = r->world,
                                     .count = COUNT,
                                     .tail = TAIL,
                                     .tensors = tensors,
                                     .tensor_count = TENSORS,
                                     .device = u->device,
                                     .thread = 1};
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.params, &e), &e);
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.grads, &e), &e);
    for (size_t i = 0; i < count; i++)
        RANK_OK(coll_alloc(m->group, COUNT, &m->config.arrays[i], &e), &e);
    RANK_OK(sync_open(&m->sync, m->group, &m->config, &e), &e);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++)
            m->config.params[i] = (float)(i % 7) * 0.25f;
    sync_start(m->sync);
}

static void member_close(struct member *m)
{
    sync_close(m->sync);
    coll_close(m->group);
}

static void member_step(struct member *m)
{
    struct err e = {0};

    RANK_OK(sync_after_step(m->sync, m->local, m->all, &e), &e);
}

static void measure_known_deltas(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct coll_stats before, after;
    struct sync_round round;
    struct member m;
    double by = u->spec.wire == WIRE_FP32 ? 1e-5 : 0.02;

    member_open(r, rank, u, &m);
    for (int64_t n = 1; n <= 2; n++) {
        member_step(&m);
        for (size_t t = 0; t < TENSORS && n == 1; t++)
            for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++)
                m.config.params[i] -= delta_of(u->deltas, rank, i);
        RANK_CHECK(!sync_take_round(m.sync, &round));
        coll_get_stats(m.group, &before);
        member_step(&m);
        if (u->spec.overlap) {
            RANK_CHECK(!sync_take_round(m.sync, &round));
            struct err e = {0};

            RANK_OK(sync_join(m.sync, &e), &e);
        }
        coll_get_stats(m.group, &after);
        RANK_CHECK(sync_take_round(m.sync, &round));
        RANK_CHECK(round.round == n && round.bytes == after.bytes - before.bytes);
        /* Of the ranks of a node, only the first may have sent something. */
        RANK_CHECK(rank > 0 || (round.bytes > 0) == (r->world > 1));
        /* The second round's deltas hold what rounding left of the first. */
        RANK_CHECK(n > 1 || near_to(round.norm, u->norm, by * u->norm + 1e-6));
        RANK_CHECK(n > 1 || near_to(round.agreement, u->agreement, by));
        RANK_CHECK(!sync_take_round(m.sync, &round));
    }
    member_close(&m);
}

static void check_known_deltas(int world, const struct setup *u)
{
    struct ranks near = {.world = world, .arg = u};
    struct ranks far = {
        .world = world, .node_of = {0, 1, 1, 2}, .arg = u, .pairs = sync_wants_pairs(&u->spec, world)};

    assert_true(ranks_run(&near, measure_known_deltas));
    ranks_release(&near);
    assert_true(ranks_run(&far, measure_known_deltas));
    ranks_release(&far);
}

/* Both strategies, all formats, and a device whose memory is not the host's. */
static void check_all_ways(int world, enum deltas deltas, int64_t first, double norm, double agreement)
{
    static const enum wire_type wires[] = {WIRE_FP32, WIRE_BF16, WIRE_INT8, WIRE_INT4};
    struct setup u = {.deltas = deltas, .samples = {first, 1}, .norm = norm, .agreement = agreement};

    for (int way = 0; way < 2; way++) {
        u.device = way ? &far_device : &plain_device;
        u.spec = (struct sync_spec){.type = SYNC_AVERAGE, .every = EVERY};
        /* Alone, there is nothing to average. */
        u.norm = world == 1 ? NAN : norm;
        check_known_deltas(world, &u);
        u.norm = norm;
        for (size_t k = 0; k < sizeof(wires) / sizeof(wires[0]); k++) {
            u.spec = (struct sync_spec){.type = SYNC_DILOCO,
                                        .every = EVERY,
                                        .outer_lr = 0.7,
                                        .outer_momentum = 0.9,
                                        .wire = wires[k],
                                        .fragments = 1,
                                        .overlap = k % 2,
                                        .mix = 0};
            check_known_deltas(world, &u);
        }
    }
}

static void equal_deltas_agree(void **state)
{
    (void)state;
    check_all_ways(3, EQUAL, 1, 0.5 * sqrt(501), 1);
}

static void opposite_deltas_cancel_out(void **state)
{
    (void)state;
    check_all_ways(2, OPPOSITE, 1, 0, 0);
}

static void orthogonal_deltas_agree_by_half_of_the_squares(void **state)
{
    (void)state;
    check_all_ways(2, ORTHOGONAL, 1, 0.25 * sqrt(400), sqrt(0.5));
}

/* Of three samples to one: |(0.75 a, 0.25 b)| with |a| = |b|. */
static void members_count_by_their_samples(void **state)
{
    (void)state;
    check_all_ways(2, ORTHOGONAL, 3, sqrt(0.625) * 0.5 * sqrt(200), sqrt(0.625));
}

static void deltas_of_nothing_have_no_agreement(void **state)
{
    (void)state;
    check_all_ways(2, NONE, 1, 0, NAN);
}

static void one_member_has_a_norm_and_no_agreement(void **state)
{
    (void)state;
    check_all_ways(1, EQUAL, 1, 0.5 * sqrt(501), NAN);
}

static void measure_each_step(struct ranks *r, int rank)
{
    struct sync_round round;
    struct member m;

    member_open(r, rank, r->arg, &m);
    m.config.params[0] += 0.5f;
    member_step(&m);
    RANK_CHECK(sync_take_round(m.sync, &round));
    RANK_CHECK(round.round == 1 && round.bytes > 0 && near_to(round.norm, 0.5, 1e-5) &&
               near_to(round.agreement, 1.0, 1e-5));
    member_close(&m);
}

/* Parameters are averaged at each step, and a copy of the last average is kept. */
static void rounds_of_a_step_are_measured(void **state)
{
    struct setup u = {.spec = {.type = SYNC_AVERAGE, .every = 1}, .device = &plain_device, .samples = {1, 1}};
    struct ranks r = {.world = 2, .arg = &u};

    (void)state;
    assert_true(ranks_run(&r, measure_each_step));
    ranks_release(&r);
}

/* ---- the parts */

static void sums_of_squares_are_those_of_a_plain_loop(void **state)
{
    enum { MOST = 1100 };
    float x[MOST], y[MOST], out[MOST], old[MOST];
    double sum = 0, away = 0;

    (void)state;
    for (size_t i = 0; i < MOST; i++) {
        x[i] = (float)i * 0.037f - 20;
        y[i] = old[i] = (float)(i % 5);
    }
    for (size_t n = 0; n <= MOST; n++) {
        assert_true(near_to(squares_sum(x, n), sum, 1e-6 * sum));
        assert_true(near_to(squares_of_difference(x, y, n), away, 1e-6 * away));
        assert_true(near_to(squares_scaled(out, x, y, 0.75f, n), away, 1e-6 * away));
        for (size_t i = 0; i < n; i++)
            assert_true(out[i] == x[i] * 0.75f);
        assert_true(near_to(squares_moved(out, x, y, n), away, 1e-6 * away));
        assert_memory_equal(out, x, n * sizeof(float));
        assert_memory_equal(y, x, n * sizeof(float));
        memcpy(y, old, sizeof(y));
        if (n < MOST) {
            sum += (double)x[n] * (double)x[n];
            away += ((double)x[n] - (double)y[n]) * ((double)x[n] - (double)y[n]);
        }
    }
}

static void squares_of_codes_equal_those_of_the_decoded_values(void **state)
{
    static const size_t counts[] = {1, 63, 64, 65, 200};
    float x[200], q[200];
    uint8_t codes[1024];

    (void)state;
    for (size_t i = 0; i < 200; i++)
        x[i] = (float)(i % 13) * 0.41f - 2;
    for (int wire = WIRE_FP32; wire <= WIRE_INT4; wire++)
        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
            double want;

            memset(q, 0, sizeof(q));
            assert_true(wire_encode((enum wire_type)wire, x, counts[k], codes));
            wire_add((enum wire_type)wire, codes, counts[k], 1, q);
            want = squares_sum(q, counts[k]);
            assert_true(near_to(wire_squares((enum wire_type)wire, codes, counts[k]), want, 1e-6 * want));
        }
}

static void low_agreement_is_said_once_after_five_rounds(void **state)
{
    int low = 0, said = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_false(sync_agreement_stays_low(&low, 0.05));
    assert_false(sync_agreement_stays_low(&low, 0.1)); /* begins again */
    for (int i = 0; i < 4; i++)
        assert_false(sync_agreement_stays_low(&low, 0.0));
    assert_false(sync_agreement_stays_low(&low, NAN)); /* says nothing */
    assert_true(sync_agreement_stays_low(&low, 0.09));
    for (int i = 0; i < 20; i++)
        said += sync_agreement_stays_low(&low, 0.05);
    assert_int_equal(said, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_deltas_agree),
        cmocka_unit_test(opposite_deltas_cancel_out),
        cmocka_unit_test(orthogonal_deltas_agree_by_half_of_the_squares),
        cmocka_unit_test(members_count_by_their_samples),
        cmocka_unit_test(deltas_of_nothing_have_no_agreement),
        cmocka_unit_test(one_member_has_a_norm_and_no_agreement),
        cmocka_unit_test(rounds_of_a_step_are_measured),
        cmocka_unit_test(sums_of_squares_are_those_of_a_plain_loop),
        cmocka_unit_test(squares_of_codes_equal_those_of_the_decoded_values),
        cmocka_unit_test(low_agreement_is_said_once_after_five_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
