/* Exchanges of diloco that fail, and groups of other ranks after them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/unit/trainer/member/sync/quadratic.h"

static uint64_t state_hash(const struct member *m)
{
    uint64_t hash = ranks_hash(m->config.params, COUNT * sizeof(float));

    for (size_t i = 0; i < SYNC_MAX_ARRAYS && m->config.arrays[i]; i++)
        hash = hash * 31 + ranks_hash(m->config.arrays[i], COUNT * sizeof(float));
    return hash;
}

static void lose_a_peer_in_a_round(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    struct sync_state before, after;
    struct err e = {0};
    struct member m;
    uint64_t hash;

    member_open(r, rank, &u->spec, 0, &m);
    for (int step = 0; step < 2 * EVERY; step++) {
        sync_at_step(m.sync, step, STEPS);
        member_compute(&m, u, step);
        hash = state_hash(&m);
        sync_save(m.sync, &before);
        if (step + 1 == 2 * EVERY && rank == 1)
            member_dies_at_gather(u->dies_at_gather);
        if (sync_after_step(m.sync, quadratic_samples(u, rank, step),
                            quadratic_samples_of_all(u, r->world, step), &e)) {
            RANK_CHECK(step + 1 == 2 * EVERY && e.code == ERR_ABORTED);
            RANK_CHECK(state_hash(&m) == hash);
            sync_save(m.sync, &after);
            RANK_CHECK(after.steps == EVERY && after.rounds == 1 && after.turn == 1);
            RANK_CHECK(after.local_samples == before.local_samples + quadratic_samples(u, rank, step));
        }
    }
    RANK_CHECK(e.code == ERR_ABORTED);
    member_close(&m);
}

static void a_death_in_a_round_changes_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < WIRES; k++)
        for (int gather = 1; gather <= (quadratic_wires[k] == WIRE_FP32 ? 1 : 2); gather++) {
            struct quadratic u = quadratic_setup(quadratic_wires[k]);
            struct ranks near = {.world = 3, .arg = &u, .pairs = true};
            struct ranks far = {.world = 3, .node_of = {0, 1, 2}, .arg = &u, .pairs = true};

            /* Before the ranks say what they have, or after the owners have got their slices. */
            u.dies_at_gather = gather;
            assert_true(ranks_run(&near, lose_a_peer_in_a_round));
            ranks_release(&near);
            assert_true(ranks_run(&far, lose_a_peer_in_a_round));
            ranks_release(&far);
        }
}

/* The same ranks make the exchange again, and send the same codes. */
static void a_failed_exchange_is_repeated_bit_for_bit(void **state)
{
    (void)state;
    for (size_t k = 1; k < WIRES; k++) {
        struct quadratic u = quadratic_setup(quadratic_wires[k]);
        float got[PARAMS];
        uint64_t whole, cut;

        quadratic_run(&quadratic_layouts[3], &u, got, &whole);
        u.fails_at_gather = 4; /* the answers of the second round */
        quadratic_run(&quadratic_layouts[3], &u, got, &cut);
        assert_true(whole == cut);
    }
}

/* e of another rank or world means something else in the slices that a rank owned and owns. */
static void move_to_another_rank(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    const struct sync_state was = {.rank = 4, .world_size = 5};
    bool sliced = u->spec.wire != WIRE_FP32 && r->world >= 3;
    struct member m;
    float *e;

    member_open(r, rank, &u->spec, 0, &m);
    e = m.config.arrays[2];
    for (size_t i = 0; i < PARAMS; i++)
        e[i] = 1;
    sync_load(m.sync, &was);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = quadratic_tensors[t].offset;
             i < quadratic_tensors[t].offset + quadratic_tensors[t].count; i++) {
            int f = 0;

            while (!quadratic_in_fragment(u, t, f))
                f++;
            bool dropped =
                quadratic_owner(u, 5, f, i) == 4 || (sliced && quadratic_owner(u, r->world, f, i) == rank);

            RANK_CHECK(e[i] == (dropped ? 0.0f : 1.0f));
        }
    member_close(&m);
}

static void run_with_slices(void (*fn)(struct ranks *r, int rank))
{
    for (int world = 2; world <= 3; world++)
        for (int fragments = 1; fragments <= 3; fragments += 2) {
            struct quadratic u = quadratic_setup(WIRE_INT4);
            struct ranks r = {.world = world, .arg = &u};

            u.spec.fragments = fragments;
            assert_true(ranks_run(&r, fn));
            ranks_release(&r);
        }
}

static void other_ranks_drop_what_slices_kept(void **state)
{
    (void)state;
    run_with_slices(move_to_another_rank);
}

/* Slices are cut within fragments, so with other fragments the owners are others. */
static void resume_with_other_fragments(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;

    for (int64_t fragments = 0; fragments <= 3; fragments++) {
        const struct sync_state was = {.rank = rank, .world_size = r->world, .fragments = fragments};
        const bool dropped = r->world >= 3 && fragments && fragments != u->spec.fragments;
        struct member m;
        float *e;

        member_open(r, rank, &u->spec, 0, &m);
        e = m.config.arrays[2];
        for (size_t i = 0; i < PARAMS; i++)
            e[i] = 1;
        sync_load(m.sync, &was);
        for (size_t i = 0; i < PARAMS; i++)
            RANK_CHECK(e[i] == (dropped ? 0.0f : 1.0f));
        member_close(&m);
    }
}

static void other_fragments_drop_what_slices_kept(void **state)
{
    (void)state;
    run_with_slices(resume_with_other_fragments);
}

/* Alone with the samples of a round, an owner may have more than the wire's formats hold. */
static void overflow_in_rank_0(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &u->spec, 0, &m);
    for (int step = 0; step < EVERY && !e.code; step++) {
        if (step + 1 == EVERY && rank == 0)
            m.config.params[0] = -3.4e38f;
        (void)!sync_after_step(m.sync, rank == 0, 1, &e);
    }
    RANK_CHECK(e.code == (rank == 0 ? ERR_OUT_OF_RANGE : ERR_ABORTED) && strstr(e.msg, "rank 0"));
    for (size_t i = 0; i < PARAMS; i++)
        RANK_CHECK(isfinite(sync_shared(m.sync)[i]));
    member_close(&m);
}

static void a_sum_that_is_too_large_is_not_applied(void **state)
{
    (void)state;
    for (size_t k = 1; k < WIRES; k++) {
        struct quadratic u = quadratic_setup(quadratic_wires[k]);
        struct ranks r = {.world = 3, .arg = &u};

        assert_true(ranks_run(&r, overflow_in_rank_0));
        ranks_release(&r);
    }
}

/* An evaluation joins the exchange between two steps; the votes that came with it are still told. */
static void join_between_steps(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &u->spec, 0, &m);
    for (int step = 0; step < EVERY + 3; step++) {
        sync_at_step(m.sync, step, STEPS);
        member_compute(&m, u, step);
        RANK_OK(sync_after_step(m.sync, 1, r->world, &e), &e);
        RANK_CHECK(sync_voted(m.sync) == (step == EVERY));
        RANK_CHECK(step != EVERY || sync_carrier(m.sync)[PARAMS + 1] > 0.0f);
        if (step + 1 == EVERY)
            RANK_OK(sync_join(m.sync, &e), &e);
    }
    member_close(&m);
}

static void votes_of_an_early_join_count_at_the_next_step(void **state)
{
    struct quadratic u = quadratic_setup(WIRE_INT8);
    struct ranks two = {.world = 2, .arg = &u};

    (void)state;
    u.spec.overlap = 2;
    assert_true(ranks_run(&two, join_between_steps));
    ranks_release(&two);
}

/* Of two ranks, or of two pairs, either may be the one that is right. */
static const char *odd_message(int world)
{
    switch (world) {
    case 2:
        return "the shared models of rank 0 and of rank 1 differ from each other before exchange 0";
    case 4:
        return "the shared models of ranks 0, 2 and of ranks 1, 3 differ from each other before exchange 0";
    case 5:
        return "rank 0: its shared model differs from that of the other ranks before exchange 0";
    default:
        return "rank 1: its shared model differs from that of the other ranks before exchange 0";
    }
}

static void make_ranks_odd(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &u->spec, 0, &m);
    if (r->world == 5 ? rank == 0 : rank == 1 || rank == 3)
        m.config.arrays[0][700] += 1e-6f; /* a bit of the shared model */
    for (int step = 0; step < EVERY && !e.code; step++) {
        sync_at_step(m.sync, step, STEPS);
        member_compute(&m, u, step);
        (void)!sync_after_step(m.sync, 1, r->world, &e);
    }
    RANK_CHECK(e.code == ERR_FAILED_PRECONDITION && !strcmp(e.msg, odd_message(r->world)));
    member_close(&m);
}

static void make_rank_1_infinite(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &u->spec, 0, &m);
    for (int step = 0; step < EVERY && !e.code; step++) {
        sync_at_step(m.sync, step, STEPS);
        member_compute(&m, u, step);
        if (rank == 1)
            m.config.params[970] = step % 2 ? NAN : -INFINITY;
        (void)!sync_after_step(m.sync, 1, r->world, &e);
    }
    RANK_CHECK(e.code == (rank == 1 ? ERR_OUT_OF_RANGE : ERR_ABORTED) && strstr(e.msg, "rank 1"));
    for (size_t i = 0; i < PARAMS; i++)
        RANK_CHECK(isfinite(sync_shared(m.sync)[i]) && (rank == 1 || isfinite(m.config.params[i])));
    member_close(&m);
}

/* `average`, and diloco that is plain averaging. */
static void a_mean_that_is_not_finite_is_not_applied(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++)
        for (int world = 2; world <= 3; world++) {
            struct quadratic u = quadratic_setup(WIRE_FP32);
            struct ranks r = {.world = world, .arg = &u};

            u.spec.outer_lr = 1.0;
            u.spec.outer_momentum = 0.0;
            if (way % 2)
                u.spec = (struct sync_spec){.type = SYNC_AVERAGE, .every = EVERY};
            u.far = way / 2;
            assert_true(ranks_run(&r, make_rank_1_infinite));
            ranks_release(&r);
        }
}

/* The squares of such changes overflow, but the mean is finite. */
static void change_by_large_numbers(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &u->spec, 0, &m);
    m.config.params[970] = 1e30f;
    for (int step = 0; step < EVERY; step++)
        RANK_OK(sync_after_step(m.sync, 1, r->world, &e), &e);
    RANK_CHECK(fabsf(m.config.params[970] - 1e30f) < 1e24f);
    member_close(&m);
}

static void a_mean_of_large_numbers_is_applied(void **state)
{
    (void)state;
    for (int far = 0; far < 2; far++) {
        struct quadratic u = {.spec = {.type = SYNC_AVERAGE, .every = EVERY}, .far = far};
        struct ranks r = {.world = 3, .arg = &u};

        assert_true(ranks_run(&r, change_by_large_numbers));
        ranks_release(&r);
    }
}

static void shared_models_that_differ_are_named(void **state)
{
    (void)state;
    for (size_t k = 0; k < WIRES; k++) {
        struct quadratic u = quadratic_setup(quadratic_wires[k]);
        struct ranks infinite = {.world = 3, .arg = &u};

        for (int world = 2; world <= 5; world++) {
            struct ranks odd = {.world = world, .arg = &u};

            assert_true(ranks_run(&odd, make_ranks_odd));
            ranks_release(&odd);
        }
        assert_true(ranks_run(&infinite, make_rank_1_infinite));
        ranks_release(&infinite);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(votes_of_an_early_join_count_at_the_next_step),
        cmocka_unit_test(a_death_in_a_round_changes_nothing),
        cmocka_unit_test(a_failed_exchange_is_repeated_bit_for_bit),
        cmocka_unit_test(other_ranks_drop_what_slices_kept),
        cmocka_unit_test(other_fragments_drop_what_slices_kept),
        cmocka_unit_test(a_sum_that_is_too_large_is_not_applied),
        cmocka_unit_test(a_mean_that_is_not_finite_is_not_applied),
        cmocka_unit_test(a_mean_of_large_numbers_is_applied),
        cmocka_unit_test(shared_models_that_differ_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
