/* Tests sums by parts (sync_config.parts, of `shard: optimizer`): each rank gets the sum of its part while backward goes on, and all
 * parameters after the step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "tests/unit/base/check.h"
#include "tests/unit/trainer/member/ranks.h"
#include "tests/unit/trainer/member/sync/plain_device.h"
#include "trainer/member/sync/sync.h"

enum { TAIL = 5, PARAMS = 9973, COUNT = PARAMS + TAIL, PIECE = 500, BUCKET = 4 * PIECE, STEPS = 3 };

struct setup {
    int thread; /* as in sync_config */
    bool pieces;
    enum wire_type wire;
};

/* ---- how many buckets this rank has summed by parts */

static atomic_int summed;

enum err_code __real_coll_reduce_scatter(struct coll_group *g, float *data, const size_t *offsets,
                                         struct err *e);
enum err_code __wrap_coll_reduce_scatter(struct coll_group *g, float *data, const size_t *offsets,
                                         struct err *e);
enum err_code __wrap_coll_reduce_scatter(struct coll_group *g, float *data, const size_t *offsets,
                                         struct err *e)
{
    enum err_code code = __real_coll_reduce_scatter(g, data, offsets, e);

    atomic_fetch_add(&summed, 1);
    return code;
}

enum err_code __real_coll_reduce_scatter_bf16(struct coll_group *g, float *data, const size_t *offsets,
                                              struct err *e);
enum err_code __wrap_coll_reduce_scatter_bf16(struct coll_group *g, float *data, const size_t *offsets,
                                              struct err *e);
enum err_code __wrap_coll_reduce_scatter_bf16(struct coll_group *g, float *data, const size_t *offsets,
                                              struct err *e)
{
    enum err_code code = __real_coll_reduce_scatter_bf16(g, data, offsets, e);

    atomic_fetch_add(&summed, 1);
    return code;
}

static void wait_until_at_least(const atomic_int *what, int value)
{
    const int64_t end = clock_boot_ms() + 20000 * test_slow();

    while (atomic_load(what) < value) {
        RANK_CHECK(clock_boot_ms() < end);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* ---- a rank */

/* Whole numbers whose sums over four ranks have no more digits than bf16. */
static float gradient_of(int rank, int step, size_t i)
{
    return (float)(rank + 1) * (float)(1 + (i + (size_t)step) % 5);
}

static float summed_gradient(int world, int step, size_t i)
{
    return (float)(world * (world + 1) / 2) * (float)(1 + (i + (size_t)step) % 5);
}

/* Ranks of several nodes sum beside backward: the first bucket is summed before this rank makes its next piece. With a thread, rank
 * 0 also goes on before any other rank has given that bucket. Ranks of one node sum all of it at the end. */
static void member_backward(struct ranks *r, struct sync *s, float *grads, int rank, int step)
{
    const struct setup *u = r->arg;
    const bool apart = r->node_of[r->world - 1] > 0;
    const int before = atomic_load(&summed);

    for (size_t end = COUNT; end;) {
        const size_t part = end < PIECE ? end : PIECE;
        const bool bucket = end - part == COUNT - BUCKET;

        end -= part;
        for (size_t i = end; i < end + part; i++)
            grads[i] = gradient_of(rank, step, i);
        if (!u->pieces)
            continue;
        if (bucket && apart && u->thread && rank > 0)
            wait_until_at_least(&r->shared->counter, step + 1);
        sync_grads_ready(s, end, part);
        if (bucket && rank == 0)
            atomic_store(&r->shared->counter, step + 1);
        if (bucket && apart && u->thread)
            wait_until_at_least(&summed, before + 1);
        RANK_CHECK(!bucket || (atomic_load(&summed) > before) == apart);
    }
}

static void member_open(struct ranks *r, int rank, struct coll_group **group, struct sync_config *config)
{
    const struct setup *u = r->arg;
    struct coll_config how;
    struct err e = {0};

    ranks_config(r, rank, &how);
    how.bf16 = u->wire == WIRE_BF16;
    RANK_OK(coll_open(group, r->listeners[rank], &how, &e), &e);
    *config = (struct sync_config){.spec = {.type = SYNC_ALLREDUCE, .wire = u->wire},
                                   .rank = rank,
                                   .world_size = r->world,
                                   .count = COUNT,
                                   .tail = TAIL,
                                   .device = &plain_device,
                                   .bucket = BUCKET,
                                   .thread = u->thread};
    RANK_OK(coll_alloc(*group, COUNT, &config->params, &e), &e);
    RANK_OK(coll_alloc(*group, COUNT, &config->grads, &e), &e);
}

/* An optimizer that makes the gradients the parameters. */
static void member_step(struct ranks *r, struct sync *s, const struct sync_config *c, const size_t *parts,
                        int step)
{
    struct err e = {0};

    member_backward(r, s, c->grads, c->rank, step);
    RANK_OK(sync_before_step(s, &e), &e);
    for (size_t i = parts[c->rank]; i < parts[c->rank + 1]; i++)
        c->params[i] = c->grads[i];
    for (size_t i = PARAMS; i < COUNT; i++) /* loss and votes, for all ranks */
        RANK_CHECK(c->grads[i] == summed_gradient(r->world, step, i));
    RANK_OK(sync_after_step(s, 1, r->world, &e), &e);
    RANK_OK(sync_gather(s, &e), &e);
    for (size_t i = 0; i < PARAMS; i++)
        RANK_CHECK(c->params[i] == summed_gradient(r->world, step, i));
}

static void parts_train(struct ranks *r, int rank)
{
    const size_t world = (size_t)r->world;
    size_t parts[RANKS_MAX + 1];
    struct sync_config config;
    struct coll_group *g;
    struct err e = {0};
    struct sync *s;

    member_open(r, rank, &g, &config);
    for (size_t k = 0; k <= world; k++) /* parts of different sizes */
        parts[k] = PARAMS * k * k / (world * world);
    config.parts = parts;
    RANK_OK(sync_open(&s, g, &config, &e), &e);
    for (int step = 0; step < STEPS; step++)
        member_step(r, s, &config, parts, step);
    sync_close(s);
    coll_close(g);
}

/* ---- */

static void run_all_ways(const struct ranks *layout)
{
    static const enum wire_type wires[] = {WIRE_FP32, WIRE_BF16};

    for (int way = 0; way < 12; way++) {
        const struct setup u = {.thread = way % 3 - 1, .pieces = way / 3 % 2, .wire = wires[way / 6]};
        struct ranks r = *layout;

        r.arg = &u;
        assert_true(ranks_run(&r, parts_train));
        ranks_release(&r);
    }
}

static void parts_are_summed_while_backward_goes_on(void **state)
{
    static const struct ranks apart[] = {
        {.world = 3, .node_of = {0, 1, 2}},
        {.world = 4, .node_of = {0, 0, 1, 1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++)
        run_all_ways(&apart[i]);
}

static void ranks_of_one_node_sum_their_parts_at_the_end(void **state)
{
    (void)state;
    run_all_ways(&(struct ranks){.world = 3});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_summed_while_backward_goes_on),
        cmocka_unit_test(ranks_of_one_node_sum_their_parts_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
