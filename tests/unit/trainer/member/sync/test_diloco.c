/* Rounds of diloco against a plain reference in double precision, and what they must be equal to. */
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
#include "trainer/member/sync/strategy.h"

/* Tensors of odd sizes, with gaps, so that a block that crossed a bound would show. */
static const struct sync_tensor tensors[] = {{0, 333}, {336, 100}, {448, 65},
                                             {528, 1}, {544, 400}, {960, 75}};
#define TENSORS (sizeof(tensors) / sizeof(tensors[0]))
enum { TAIL = 3, PARAMS = 1040, COUNT = PARAMS + TAIL, EVERY = 6, STEPS = 6 * EVERY + 2, WORLD_MOST = 5 };
#define RATE 0.05f

struct setup {
    struct sync_spec spec;
    bool same_data;      /* all ranks have the samples of rank 0 */
    int reopen_after;    /* steps, then a snapshot and back from it; 0: never */
    int dies_at_gather;  /* rank 1, in its second round */
    int fails_at_gather; /* all ranks; they then open the strategy again */
    int thread;
};

/* ---- the loss: a quadratic whose minimum depends on the rank */

static int64_t samples_of(const struct setup *u, int rank, int step)
{
    return u->same_data ? 2 : (rank * 5 + step * 3) % 4; /* none at times */
}

static int64_t samples_of_all(const struct setup *u, int world, int step)
{
    int64_t n = 0;

    for (int k = 0; k < world; k++)
        n += samples_of(u, k, step);
    return n;
}

static double loss_gradient(const struct setup *u, double x, int rank, size_t i)
{
    return x - (double)(u->same_data ? 1 : rank + 1) * 0.25 -
           (double)(i % 17) * 0.125 * ldexp(1, -(int)(i / 200));
}

static double start_of(size_t i)
{
    return (double)(i % 7) * 0.25 - 0.5;
}

/* ---- the strategy */

struct member {
    struct coll_group *group;
    struct sync_config config;
    struct sync *sync;
};

static void member_open(struct ranks *r, int rank, const struct sync_spec *spec, int thread, struct member *m)
{
    struct sync_array own[SYNC_MAX_ARRAYS];
    size_t count = sync_arrays(spec, own);
    struct err e = {0};

    *m = (struct member){.group = ranks_open(r, rank)};
    m->config = (struct sync_config){.spec = *spec,
                                     .rank = rank,
                                     .world_size = r->world,
                                     .count = COUNT,
                                     .tail = TAIL,
                                     .tensors = tensors,
                                     .tensor_count = TENSORS,
                                     .device = &plain_device,
                                     .bucket = 300,
                                     .thread = thread};
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.params, &e), &e);
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.grads, &e), &e);
    for (size_t i = 0; i < count; i++)
        RANK_OK(coll_alloc(m->group, COUNT, &m->config.arrays[i], &e), &e);
    RANK_OK(sync_open(&m->sync, m->group, &m->config, &e), &e);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++)
            m->config.params[i] = (float)start_of(i);
    sync_start(m->sync);
}

static void member_close(struct member *m)
{
    sync_close(m->sync);
    coll_close(m->group);
}

/* Backward and optimizer. */
static void member_compute(const struct member *m, const struct setup *u, int step)
{
    int rank = m->config.rank, world = m->config.world_size;
    int64_t local = samples_of(u, rank, step);
    double divisor = (double)sync_divisor(m->sync, local, samples_of_all(u, world, step));
    struct err e = {0};

    sync_carrier(m->sync)[PARAMS] = rank == world - 1 ? 1.0f : 0.0f;
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++)
            m->config.grads[i] =
                (float)((double)local * loss_gradient(u, (double)m->config.params[i], rank, i) / divisor);
    RANK_OK(sync_before_step(m->sync, &e), &e);
    for (size_t i = 0; i < PARAMS; i++)
        m->config.params[i] -= RATE * m->config.grads[i];
}

/* What a snapshot of one rank holds, and what it does not: the strategy's arrays stay in their places here. */
static void member_reopen(struct member *m)
{
    struct sync_state state, kept = {0};
    struct err e = {0};

    RANK_OK(sync_join(m->sync, &e), &e);
    sync_save(m->sync, &state);
    kept.steps = state.steps;
    kept.local_samples = state.local_samples;
    kept.global_samples = state.global_samples;
    sync_close(m->sync);
    RANK_OK(sync_open(&m->sync, m->group, &m->config, &e), &e);
    sync_load(m->sync, &kept);
}

/* ---- gathers that fail */

/* At this call of this process a rank dies, or the call fails; 0: at none. The linker passes all calls of coll_allgather
 * on to here. */
static int dies_at_gather, fails_at_gather;
enum err_code __real_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e);
enum err_code __wrap_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e);
enum err_code __wrap_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e)
{
    if (dies_at_gather && --dies_at_gather == 0)
        _exit(0);
    if (fails_at_gather && --fails_at_gather == 0)
        return err_set(e, ERR_ABORTED, "a test made it fail");
    return __real_coll_allgather(g, mine, size, out, e);
}

static void member_train(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct coll_stats stats;
    struct err e = {0};
    struct member m;
    uint64_t hash = 0;

    member_open(r, rank, &u->spec, u->thread, &m);
    fails_at_gather = u->fails_at_gather;
    for (int step = 0; step < STEPS; step++) {
        if (u->reopen_after && step == u->reopen_after)
            member_reopen(&m);
        sync_at_step(m.sync, step);
        member_compute(&m, u, step);
        if (sync_after_step(m.sync, samples_of(u, rank, step), samples_of_all(u, r->world, step), &e)) {
            RANK_CHECK(u->fails_at_gather && !fails_at_gather && e.code == ERR_ABORTED);
            member_reopen(&m);
            RANK_OK(sync_after_step(m.sync, 0, 0, &e), &e);
        }
        if (sync_voted(m.sync) && u->spec.every == EVERY) /* a vote counts by its rank's samples */
            RANK_CHECK(sync_carrier(m.sync)[PARAMS] > 0.0f);
        hash = hash * 31 +
               ranks_hash(sync_shared(m.sync), PARAMS * sizeof(float)); /* at any time the same on all */
    }
    RANK_OK(sync_settle(m.sync, &e), &e);
    RANK_CHECK(sync_settled(m.sync));
    RANK_CHECK(!memcmp(sync_shared(m.sync), m.config.params, PARAMS * sizeof(float)));
    coll_get_stats(m.group, &stats);
    r->shared->hash[rank] = hash * 31 + ranks_hash(m.config.params, PARAMS * sizeof(float));
    r->shared->code[rank] = (int)stats.bytes;
    if (rank == 0)
        memcpy(r->shared->result, m.config.params, PARAMS * sizeof(float));
    member_close(&m);
}

/* ---- the reference, all ranks in one process */

struct world {
    const struct setup *u;
    int size;
    double theta[WORLD_MOST][PARAMS], g[PARAMS], v[PARAMS], e[WORLD_MOST][PARAMS], x[WORLD_MOST][PARAMS];
    double seen[8][WORLD_MOST]; /* samples by fragment */
    double weights[WORLD_MOST];
};

static double bf16_nearest(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent);

    return ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8);
}

/* What arrives of tensor t of a member. */
static void wire_pass(enum wire_type wire, const struct sync_tensor *t, const double *x, double *q)
{
    double limit = wire == WIRE_INT8 ? 127 : 7;

    for (size_t block = 0; block < t->count; block += 64) {
        size_t end = block + 64 < t->count ? block + 64 : t->count;
        double most = 0, scale;

        for (size_t i = block; i < end; i++)
            most = fmax(most, fabs(x[t->offset + i]));
        scale = bf16_nearest(most / limit);
        for (size_t i = t->offset + block; i < t->offset + end; i++)
            if (wire == WIRE_FP32)
                q[i] = x[i];
            else if (wire == WIRE_BF16)
                q[i] = bf16_nearest(x[i]);
            else
                q[i] = scale > 0 ? nearbyint(x[i] / scale) * scale : 0;
    }
}

static bool in_fragment(const struct setup *u, size_t tensor, int fragment)
{
    /* By the sizes above: of three, 0 to 0, 1 to 3, 4 to 5. */
    static const int of_three[TENSORS] = {0, 1, 1, 1, 2, 2};

    return u->spec.fragments == 1 || of_three[tensor] == fragment;
}

static void reference_send(struct world *w, int fragment)
{
    double all = 0;

    for (int m = 0; m < w->size; m++)
        all += w->seen[fragment][m];
    for (int m = 0; m < w->size; m++) {
        w->weights[m] = all > 0 ? w->seen[fragment][m] / all : 1.0 / w->size;
        w->seen[fragment][m] = 0;
        for (size_t i = 0; i < PARAMS; i++)
            w->x[m][i] = w->g[i] - w->theta[m][i] + w->e[m][i];
    }
}

/* Owners have whole blocks, dealt in rows. -1: everybody gets the codes of all. */
static int owner_of(const struct setup *u, int world, int fragment, size_t element)
{
    size_t all = 0, block = 0;

    for (size_t t = 0; t < TENSORS; t++) {
        if (!in_fragment(u, t, fragment))
            continue;
        if (element >= tensors[t].offset && element < tensors[t].offset + tensors[t].count)
            block = all + (element - tensors[t].offset) / 64;
        all += (tensors[t].count + 63) / 64;
    }
    for (int k = 0; k < world && world >= 3 && u->spec.wire != WIRE_FP32; k++)
        if (block < all * (size_t)(k + 1) / (size_t)world)
            return k;
    return -1;
}

/* D, and what remains of each member's x. */
static void reference_merge(struct world *w, int fragment, size_t t, double *merged)
{
    static double q[WORLD_MOST][PARAMS], sum[PARAMS];

    for (int m = 0; m < w->size; m++)
        wire_pass(w->u->spec.wire, &tensors[t], w->x[m], q[m]);
    for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++) {
        int owner = owner_of(w->u, w->size, fragment, i);

        sum[i] = owner < 0 ? 0 : w->weights[owner] * (w->x[owner][i] - w->e[owner][i]) + w->e[owner][i];
        for (int m = 0; m < w->size; m++)
            if (m != owner) {
                sum[i] += w->weights[m] * q[m][i];
                w->e[m][i] = w->x[m][i] - q[m][i];
            }
    }
    wire_pass(w->u->spec.wire, &tensors[t], sum, merged);
    for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++) {
        int owner = owner_of(w->u, w->size, fragment, i);

        if (owner < 0)
            merged[i] = sum[i];
        else
            w->e[owner][i] = sum[i] - merged[i];
    }
}

static void reference_apply(struct world *w, int fragment, double mix)
{
    const struct sync_spec *c = &w->u->spec;
    static double merged[PARAMS];

    for (size_t t = 0; t < TENSORS; t++) {
        if (!in_fragment(w->u, t, fragment))
            continue;
        reference_merge(w, fragment, t, merged);
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++) {
            w->v[i] = c->outer_momentum * w->v[i] + merged[i];
            w->g[i] -= c->outer_lr * (merged[i] + c->outer_momentum * w->v[i]);
            for (int m = 0; m < w->size; m++)
                w->theta[m][i] = mix * w->theta[m][i] + (1 - mix) * w->g[i];
        }
    }
}

static void reference_step(struct world *w, int step, bool warm)
{
    double n = (double)samples_of_all(w->u, w->size, step);

    for (size_t i = 0; i < PARAMS; i++) {
        double sum = 0;

        for (int m = 0; m < w->size; m++)
            sum += (double)samples_of(w->u, m, step) * loss_gradient(w->u, w->theta[m][i], m, i);
        for (int m = 0; m < w->size; m++) {
            double own = samples_of(w->u, m, step) ? loss_gradient(w->u, w->theta[m][i], m, i) : 0;

            w->theta[m][i] -= (double)RATE * (warm ? (n > 0 ? sum / n : 0) : own);
        }
        if (warm)
            w->g[i] = w->theta[0][i];
    }
    for (int f = 0; !warm && f < w->u->spec.fragments; f++)
        for (int m = 0; m < w->size; m++)
            w->seen[f][m] += (double)samples_of(w->u, m, step);
}

static void reference_rounds(double *out, int size, const struct setup *u)
{
    const struct sync_spec *c = &u->spec;
    struct world *w = calloc(1, sizeof(*w));
    int64_t fragments = c->fragments, gap = EVERY / fragments, sent = -1;
    int turn = 0;

    w->u = u;
    w->size = size;
    for (size_t i = 0; i < PARAMS; i++) {
        w->g[i] = start_of(i);
        for (int m = 0; m < size; m++)
            w->theta[m][i] = start_of(i);
    }
    for (int step = 0; step < STEPS; step++) {
        int64_t made = step + 1 - c->warm; /* steps of rounds */

        reference_step(w, step, step < c->warm);
        if (made > 0 && made % gap == 0) {
            reference_send(w, turn);
            sent = made;
        }
        if (sent >= 0 && made == sent + c->overlap) {
            reference_apply(w, turn, c->overlap ? c->mix : 0);
            turn = (turn + 1) % (int)fragments;
            sent = -1;
        }
    }
    if (sent >= 0) { /* settle first takes what is under way */
        reference_apply(w, turn, c->mix);
        turn = (turn + 1) % (int)fragments;
    }
    for (int f = 0; f < fragments; f++) {
        reference_send(w, turn);
        reference_apply(w, turn, 0);
        turn = (turn + 1) % (int)fragments;
    }
    memcpy(out, w->g, PARAMS * sizeof(*out));
    free(w);
}

/* ---- tests */

static const struct ranks layouts[] = {
    {.world = 1},
    {.world = 2},
    {.world = 3},
    {.world = 3, .node_of = {0, 1, 2}},
    {.world = 5, .node_of = {0, 0, 1, 1, 1}},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static struct setup setup_of(enum wire_type wire)
{
    return (struct setup){.spec = {.type = SYNC_DILOCO,
                                   .every = EVERY,
                                   .outer_lr = 0.9,
                                   .outer_momentum = 0.6,
                                   .wire = wire,
                                   .fragments = 1,
                                   .mix = 0.25}};
}

/* Returns the bytes that rank 0 has sent. */
static int world_run(const struct ranks *layout, const struct setup *u, float *out, uint64_t *hash)
{
    struct ranks r = *layout;
    int bytes;

    r.arg = u;
    r.pairs = sync_wants_pairs(&u->spec, r.world);
    assert_true(ranks_run(&r, member_train));
    memcpy(out, r.shared->result, PARAMS * sizeof(float));
    for (int k = 1; k < r.world; k++)
        assert_int_equal(r.shared->hash[k], r.shared->hash[0]);
    *hash = r.shared->hash[0];
    bytes = r.shared->code[0];
    ranks_release(&r);
    return bytes;
}

/* A code may differ where a float lies next to the middle between two codes, and all codes of a block where its scale
 * does: of a few elements, by little. */
static void rounds_check(const struct ranks *layout, const struct setup *u)
{
    double want[PARAMS];
    float got[PARAMS];
    uint64_t hash;
    int odd = 0;

    world_run(layout, u, got, &hash);
    reference_rounds(want, layout->world, u);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++) {
            double away = fabs((double)got[i] - want[i]), size = 1 + fabs(want[i]);

            if (away > (u->spec.wire == WIRE_FP32 ? 1e-6 : 0.02) * size)
                fail_msg("world %d, wire %d, element %zu: %.9g, not %.9g", layout->world, (int)u->spec.wire,
                         i, (double)got[i], want[i]);
            odd += away > 1e-6 * size;
        }
    if (odd > PARAMS / 8)
        fail_msg("world %d, wire %d: %d elements differ", layout->world, (int)u->spec.wire, odd);
}

static const enum wire_type wires[] = {WIRE_FP32, WIRE_BF16, WIRE_INT8, WIRE_INT4};
#define WIRES (sizeof(wires) / sizeof(wires[0]))

/* Memory is what a large model lacks first. */
static void a_job_has_the_arrays_that_it_needs(void **state)
{
    struct sync_array out[SYNC_MAX_ARRAYS];
    struct sync_spec average = {.type = SYNC_AVERAGE, .every = 16}, each = {.type = SYNC_AVERAGE, .every = 1};
    struct setup u = setup_of(WIRE_FP32);

    (void)state;
    assert_int_equal(sync_arrays(&each, out), 0);
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
    for (size_t l = 0; l < LAYOUTS; l++)
        for (size_t k = 0; k < WIRES; k++) {
            struct setup u = setup_of(wires[k]);

            rounds_check(&layouts[l], &u);
        }
}

static void overlap_and_fragments_are_those_of_the_reference(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++)
        for (size_t k = 0; k < WIRES; k += 3)
            for (int way = 1; way < 8; way++) {
                struct setup u = setup_of(wires[k]);

                u.spec.overlap = way & 1;
                u.spec.fragments = way & 2 ? 3 : 1;
                u.spec.warm = way & 4 ? 5 : 0;
                u.thread = way & 1;
                rounds_check(&layouts[l], &u);
            }
}

static void without_outer_momentum_it_is_averaging_bit_for_bit(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct setup u = setup_of(WIRE_FP32), average = {.spec = {.type = SYNC_AVERAGE, .every = EVERY}};
        float got[PARAMS], want[PARAMS];
        uint64_t hash;

        u.spec.outer_lr = 1;
        u.spec.outer_momentum = 0;
        world_run(&layouts[l], &u, got, &hash);
        world_run(&layouts[l], &average, want, &hash);
        assert_memory_equal(got, want, sizeof(got));
    }
}

/* Also where the sum is that of deltas. */
static void the_mean_of_deltas_is_the_mean(void **state)
{
    struct setup u = setup_of(WIRE_FP32), average = {.spec = {.type = SYNC_AVERAGE, .every = EVERY}};
    float got[PARAMS], want[PARAMS];
    uint64_t hash;

    (void)state;
    u.spec.outer_lr = 1;
    u.spec.outer_momentum = 1e-30;
    world_run(&layouts[3], &u, got, &hash);
    world_run(&layouts[3], &average, want, &hash);
    for (size_t i = 0; i < PARAMS; i++)
        assert_true(fabs((double)got[i] - (double)want[i]) < 1e-6);
}

static void averaging_each_step_is_all_reduce(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct setup average = {.spec = {.type = SYNC_AVERAGE, .every = 1}};
        struct setup all = {.spec = {.type = SYNC_ALLREDUCE}};
        float got[PARAMS], want[PARAMS];
        uint64_t hash;

        world_run(&layouts[l], &average, got, &hash);
        world_run(&layouts[l], &all, want, &hash);
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++)
                assert_true(fabs((double)got[i] - (double)want[i]) < 1e-5);
    }
}

static void two_members_with_equal_data_are_one(void **state)
{
    (void)state;
    for (size_t k = 0; k < WIRES; k++) {
        struct setup u = setup_of(wires[k]);
        float one[PARAMS], two[PARAMS];
        uint64_t hash[2];

        u.same_data = true;
        world_run(&layouts[0], &u, one, &hash[0]);
        world_run(&layouts[1], &u, two, &hash[1]);
        assert_memory_equal(one, two, sizeof(one));
    }
}

static void a_resumed_round_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < WIRES; k++)
        for (int fragments = 1; fragments <= 3; fragments += 2)
            for (int after = 11; after <= 15; after++) {
                struct setup u = setup_of(wires[k]);
                float got[PARAMS];
                uint64_t whole, cut;

                u.spec.fragments = fragments;
                u.same_data = fragments > 1; /* a snapshot does not keep each fragment's samples */
                world_run(&layouts[2], &u, got, &whole);
                u.reopen_after = after;
                world_run(&layouts[2], &u, got, &cut);
                assert_true(whole == cut);
            }
}

static void codes_are_a_part_of_the_bytes(void **state)
{
    struct setup all = {.spec = {.type = SYNC_ALLREDUCE}}, coded = setup_of(WIRE_INT4);
    struct ranks two = {.world = 2, .node_of = {0, 1}};
    float out[PARAMS];
    uint64_t hash;
    int much, little;

    (void)state;
    much = world_run(&two, &all, out, &hash);
    little = world_run(&two, &coded, out, &hash);
    assert_true(little * 10 <
                much); /* 38 steps and 7 exchanges of an eighth; words and headers are most of it here */
}

/* Two legs of (n - 1) / n of the codes, whatever the number of ranks; fp32 takes two legs of floats. */
static void bytes_do_not_grow_with_the_ranks(void **state)
{
    (void)state;
    for (size_t k = 1; k < WIRES; k++) {
        struct setup u = setup_of(wires[k]);
        struct ranks three = {.world = 3, .node_of = {0, 1, 2}},
                     five = {.world = 5, .node_of = {0, 1, 2, 3, 4}};
        /* Seven exchanges of 17 blocks; words, headers and padding are most of the rest. */
        int code = wires[k] == WIRE_BF16 ? 128 : wires[k] == WIRE_INT8 ? 66 : 34, rest = 7 * 5 * 300;
        float out[PARAMS];
        uint64_t hash;

        assert_in_range(world_run(&three, &u, out, &hash), 1, 7 * 17 * code * 2 * 2 / 3 + rest);
        assert_in_range(world_run(&five, &u, out, &hash), 1, 7 * 17 * code * 2 * 4 / 5 + rest);
    }
}

/* ---- failures */

static uint64_t state_hash(const struct member *m)
{
    uint64_t hash = ranks_hash(m->config.params, COUNT * sizeof(float));

    for (size_t i = 0; i < SYNC_MAX_ARRAYS && m->config.arrays[i]; i++)
        hash = hash * 31 + ranks_hash(m->config.arrays[i], COUNT * sizeof(float));
    return hash;
}

static void lose_a_peer_in_a_round(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct sync_state before, after;
    struct err e = {0};
    struct member m;
    uint64_t hash;

    member_open(r, rank, &u->spec, 0, &m);
    for (int step = 0; step < 2 * EVERY; step++) {
        sync_at_step(m.sync, step);
        member_compute(&m, u, step);
        hash = state_hash(&m);
        sync_save(m.sync, &before);
        if (step + 1 == 2 * EVERY && rank == 1)
            dies_at_gather = u->dies_at_gather;
        if (sync_after_step(m.sync, samples_of(u, rank, step), samples_of_all(u, r->world, step), &e)) {
            RANK_CHECK(step + 1 == 2 * EVERY && e.code == ERR_ABORTED);
            RANK_CHECK(state_hash(&m) == hash);
            sync_save(m.sync, &after);
            RANK_CHECK(after.steps == EVERY && after.rounds == 1 && after.turn == 1);
            RANK_CHECK(after.local_samples == before.local_samples + samples_of(u, rank, step));
        }
    }
    RANK_CHECK(e.code == ERR_ABORTED);
    member_close(&m);
}

static void a_death_in_a_round_changes_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < WIRES; k++)
        for (int gather = 1; gather <= (wires[k] == WIRE_FP32 ? 1 : 2); gather++) {
            struct setup u = setup_of(wires[k]);
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
        struct setup u = setup_of(wires[k]);
        float got[PARAMS];
        uint64_t whole, cut;

        world_run(&layouts[3], &u, got, &whole);
        u.fails_at_gather = 4; /* the answers of the second round */
        world_run(&layouts[3], &u, got, &cut);
        assert_true(whole == cut);
    }
}

/* e of another rank or world means something else in the slices that a rank owned and owns. */
static void move_to_another_rank(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
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
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++) {
            int f = 0;

            while (!in_fragment(u, t, f))
                f++;
            bool dropped = owner_of(u, 5, f, i) == 4 || (sliced && owner_of(u, r->world, f, i) == rank);

            RANK_CHECK(e[i] == (dropped ? 0.0f : 1.0f));
        }
    member_close(&m);
}

static void other_ranks_drop_what_slices_kept(void **state)
{
    (void)state;
    for (int world = 2; world <= 3; world++)
        for (int fragments = 1; fragments <= 3; fragments += 2) {
            struct setup u = setup_of(WIRE_INT4);
            struct ranks r = {.world = world, .arg = &u};

            u.spec.fragments = fragments;
            assert_true(ranks_run(&r, move_to_another_rank));
            ranks_release(&r);
        }
}

/* Alone with the samples of a round, an owner may have more than the wire's formats hold. */
static void overflow_in_rank_0(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
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
        struct setup u = setup_of(wires[k]);
        struct ranks r = {.world = 3, .arg = &u};

        assert_true(ranks_run(&r, overflow_in_rank_0));
        ranks_release(&r);
    }
}

/* An evaluation joins the exchange between two steps; the votes that came with it are still told. */
static void join_between_steps(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &u->spec, 0, &m);
    for (int step = 0; step < EVERY + 3; step++) {
        sync_at_step(m.sync, step);
        member_compute(&m, u, step);
        RANK_OK(sync_after_step(m.sync, 1, r->world, &e), &e);
        RANK_CHECK(sync_voted(m.sync) == (step == EVERY));
        RANK_CHECK(step != EVERY || sync_carrier(m.sync)[PARAMS] > 0.0f);
        if (step + 1 == EVERY)
            RANK_OK(sync_join(m.sync, &e), &e);
    }
    member_close(&m);
}

static void votes_of_an_early_join_count_at_the_next_step(void **state)
{
    struct setup u = setup_of(WIRE_INT8);
    struct ranks two = {.world = 2, .arg = &u};

    (void)state;
    u.spec.overlap = 2;
    assert_true(ranks_run(&two, join_between_steps));
    ranks_release(&two);
}

static void make_rank_1_odd(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &u->spec, 0, &m);
    if (rank == 1)
        m.config.arrays[0][700] += 1e-6f; /* a bit of the shared model */
    for (int step = 0; step < EVERY && !e.code; step++) {
        sync_at_step(m.sync, step);
        member_compute(&m, u, step);
        (void)!sync_after_step(m.sync, 1, r->world, &e);
    }
    RANK_CHECK(e.code == ERR_FAILED_PRECONDITION && strstr(e.msg, "rank 1: its shared model differs"));
    member_close(&m);
}

static void make_rank_1_infinite(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &u->spec, 0, &m);
    for (int step = 0; step < EVERY && !e.code; step++) {
        sync_at_step(m.sync, step);
        member_compute(&m, u, step);
        if (rank == 1)
            m.config.params[970] = step % 2 ? NAN : -INFINITY;
        (void)!sync_after_step(m.sync, 1, r->world, &e);
    }
    RANK_CHECK(e.code == (rank == 1 ? ERR_OUT_OF_RANGE : ERR_ABORTED) && strstr(e.msg, "rank 1"));
    for (size_t i = 0; i < PARAMS; i++)
        RANK_CHECK(isfinite(sync_shared(m.sync)[i]));
    member_close(&m);
}

static void the_rank_that_differs_is_named(void **state)
{
    (void)state;
    for (size_t k = 0; k < WIRES; k++) {
        struct setup u = setup_of(wires[k]);
        struct ranks odd = {.world = 3, .arg = &u}, infinite = {.world = 3, .arg = &u};

        assert_true(ranks_run(&odd, make_rank_1_odd));
        ranks_release(&odd);
        assert_true(ranks_run(&infinite, make_rank_1_infinite));
        ranks_release(&infinite);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_has_the_arrays_that_it_needs),
        cmocka_unit_test(rounds_are_those_of_the_reference),
        cmocka_unit_test(overlap_and_fragments_are_those_of_the_reference),
        cmocka_unit_test(without_outer_momentum_it_is_averaging_bit_for_bit),
        cmocka_unit_test(the_mean_of_deltas_is_the_mean),
        cmocka_unit_test(averaging_each_step_is_all_reduce),
        cmocka_unit_test(two_members_with_equal_data_are_one),
        cmocka_unit_test(a_resumed_round_gives_the_same_bits),
        cmocka_unit_test(codes_are_a_part_of_the_bytes),
        cmocka_unit_test(bytes_do_not_grow_with_the_ranks),
        cmocka_unit_test(votes_of_an_early_join_count_at_the_next_step),
        cmocka_unit_test(a_death_in_a_round_changes_nothing),
        cmocka_unit_test(a_failed_exchange_is_repeated_bit_for_bit),
        cmocka_unit_test(other_ranks_drop_what_slices_kept),
        cmocka_unit_test(a_sum_that_is_too_large_is_not_applied),
        cmocka_unit_test(the_rank_that_differs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
