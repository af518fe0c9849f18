#include "tests/unit/trainer/member/sync/quadratic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/trainer/member/sync/plain_device.h"

const struct sync_tensor quadratic_tensors[TENSORS] = {{0, 333}, {336, 100}, {448, 65},
                                                       {528, 1}, {544, 400}, {960, 75}};
const enum wire_type quadratic_wires[WIRES] = {WIRE_FP32, WIRE_BF16, WIRE_INT8, WIRE_INT4};

struct quadratic quadratic_setup(enum wire_type wire)
{
    return (struct quadratic){.spec = {.type = SYNC_DILOCO,
                                       .every = EVERY,
                                       .outer_lr = 0.9,
                                       .outer_momentum = 0.6,
                                       .wire = wire,
                                       .fragments = 1,
                                       .mix = 0.25}};
}

/* ---- the loss: a quadratic whose minimum depends on the rank */

int64_t quadratic_samples(const struct quadratic *u, int rank, int step)
{
    if (u->idle && step / EVERY % 3 == rank)
        return 0;
    return u->same_data ? 2 : (rank * 5 + step * 3) % 4; /* none at times */
}

int64_t quadratic_samples_of_all(const struct quadratic *u, int world, int step)
{
    int64_t n = 0;

    for (int k = 0; k < world; k++)
        n += quadratic_samples(u, k, step);
    return n;
}

int quadratic_steps(int rank, int round)
{
    return 1 + (rank * 3 + round) % STEPS_MOST;
}

int64_t quadratic_progress(int round, int steps)
{
    return round * STEPS_MOST + steps;
}

/* Of all ranks in a round of a given time. */
static int64_t samples_of_round(const struct quadratic *u, int world, int round)
{
    int64_t n = 0;

    for (int k = 0; k < world; k++)
        for (int step = 0; step < quadratic_steps(k, round); step++)
            n += quadratic_samples(u, k, step);
    return n;
}

double quadratic_gradient(const struct quadratic *u, double x, int rank, size_t i)
{
    return x - (double)(u->same_data ? 1 : rank + 1) * 0.25 -
           (double)(i % 17) * 0.125 * ldexp(1, -(int)(i / 200));
}

double quadratic_start(size_t i)
{
    return (double)(i % 7) * 0.25 - 0.5;
}

/* ---- slices and fragments */

bool quadratic_in_fragment(const struct quadratic *u, size_t tensor, int fragment)
{
    /* By the sizes above: of three, 0 to 0, 1 to 3, 4 to 5. */
    static const int of_three[TENSORS] = {0, 1, 1, 1, 2, 2};

    return u->spec.fragments == 1 || of_three[tensor] == fragment;
}

int quadratic_owner(const struct quadratic *u, int world, int fragment, size_t element)
{
    size_t all = 0, block = 0;

    for (size_t t = 0; t < TENSORS; t++) {
        if (!quadratic_in_fragment(u, t, fragment))
            continue;
        if (element >= quadratic_tensors[t].offset &&
            element < quadratic_tensors[t].offset + quadratic_tensors[t].count)
            block = all + (element - quadratic_tensors[t].offset) / 64;
        all += (quadratic_tensors[t].count + 63) / 64;
    }
    for (int k = 0; k < world && world >= 3 && u->spec.wire != WIRE_FP32; k++)
        if (block < all * (size_t)(k + 1) / (size_t)world)
            return k;
    return -1;
}

/* ---- a rank */

void member_open(struct ranks *r, int rank, const struct sync_spec *spec, int thread, struct member *m)
{
    const struct quadratic *u = r->arg;
    struct sync_array own[SYNC_MAX_ARRAYS];
    size_t count = sync_arrays(spec, own);
    struct err e = {0};

    *m = (struct member){.group = ranks_open(r, rank)};
    m->config = (struct sync_config){.spec = *spec,
                                     .rank = rank,
                                     .world_size = r->world,
                                     .count = COUNT,
                                     .tail = TAIL,
                                     .tensors = quadratic_tensors,
                                     .tensor_count = TENSORS,
                                     .device = u->far ? &far_device : &plain_device,
                                     .bucket = 300,
                                     .thread = thread};
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.params, &e), &e);
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.grads, &e), &e);
    for (size_t i = 0; i < count; i++)
        RANK_OK(coll_alloc(m->group, COUNT, &m->config.arrays[i], &e), &e);
    RANK_OK(sync_open(&m->sync, m->group, &m->config, &e), &e);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = quadratic_tensors[t].offset;
             i < quadratic_tensors[t].offset + quadratic_tensors[t].count; i++)
            m->config.params[i] = (float)quadratic_start(i);
    sync_start(m->sync);
}

void member_close(struct member *m)
{
    sync_close(m->sync);
    coll_close(m->group);
}

/* Backward and optimizer. */
void member_compute(const struct member *m, const struct quadratic *u, int step)
{
    int rank = m->config.rank, world = m->config.world_size;
    int64_t local = quadratic_samples(u, rank, step);
    double divisor = (double)sync_divisor(m->sync, local, quadratic_samples_of_all(u, world, step));
    struct err e = {0};

    sync_carrier(m->sync)[PARAMS + 1] = rank == world - 1 ? 1.0f : 0.0f;
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = quadratic_tensors[t].offset;
             i < quadratic_tensors[t].offset + quadratic_tensors[t].count; i++)
            m->config.grads[i] =
                (float)((double)local * quadratic_gradient(u, (double)m->config.params[i], rank, i) /
                        divisor);
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

void member_dies_at_gather(int call)
{
    dies_at_gather = call;
}

/* Rounds that end after unlike numbers of steps. Returns a hash of the shared model at the ends of rounds. */
static uint64_t member_train_unlike(struct ranks *r, int rank, struct member *m)
{
    const struct quadratic *u = r->arg;
    struct sync_round made;
    struct err e = {0};
    uint64_t hash = 0;

    for (int round = 0; round < ROUNDS; round++) {
        for (int step = 0, last = quadratic_steps(rank, round) - 1; step <= last; step++) {
            sync_at_step(m->sync, quadratic_progress(round, 0), quadratic_progress(ROUNDS, 0));
            member_compute(m, u, step);
            RANK_CHECK(!sync_take_round(m->sync, &made));
            if (step == last)
                sync_end_round(m->sync, quadratic_progress(round, last + 1), 0);
            RANK_OK(sync_after_step(m->sync, quadratic_samples(u, rank, step),
                                    step == last ? samples_of_round(u, r->world, round) : 0, &e),
                    &e);
            RANK_CHECK(sync_voted(m->sync) == (step == last));
        }
        RANK_CHECK(sync_settled(m->sync) && sync_take_round(m->sync, &made));
        RANK_CHECK(made.steps == quadratic_steps(rank, round));
        hash = hash * 31 + ranks_hash(sync_shared(m->sync), PARAMS * sizeof(float));
    }
    return hash;
}

static void member_train(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    struct coll_stats stats;
    struct err e = {0};
    struct member m;
    uint64_t hash = 0;

    member_open(r, rank, &u->spec, u->thread, &m);
    fails_at_gather = u->fails_at_gather;
    if (u->timed)
        hash = member_train_unlike(r, rank, &m);
    for (int step = 0; !u->timed && step < STEPS; step++) {
        if (u->reopen_after && step == u->reopen_after)
            member_reopen(&m);
        sync_at_step(m.sync, step, STEPS);
        member_compute(&m, u, step);
        if (sync_after_step(m.sync, quadratic_samples(u, rank, step),
                            quadratic_samples_of_all(u, r->world, step), &e)) {
            RANK_CHECK(u->fails_at_gather && !fails_at_gather && e.code == ERR_ABORTED);
            member_reopen(&m);
            RANK_OK(sync_after_step(m.sync, 0, 0, &e), &e);
        }
        if (sync_voted(m.sync) && u->spec.every == EVERY)
            RANK_CHECK(sync_carrier(m.sync)[PARAMS + 1] > 0.0f);
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

/* ---- all ranks */

const struct ranks quadratic_layouts[LAYOUTS] = {
    {.world = 1},
    {.world = 2},
    {.world = 3},
    {.world = 3, .node_of = {0, 1, 2}},
    {.world = 5, .node_of = {0, 0, 1, 1, 1}},
};

int quadratic_run(const struct ranks *layout, const struct quadratic *u, float *out, uint64_t *hash)
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
