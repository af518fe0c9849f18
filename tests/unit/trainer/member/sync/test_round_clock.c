/* Rounds of a given time: how many steps fit, and that all ranks agree although their clocks do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/ranks.h"
#include "tests/unit/trainer/member/sync/plain_device.h"
#include "trainer/member/sync/round_clock.h"

#define SECOND 1000000000LL
enum { COUNT = 64, TAIL = 3, FIRST = 4, EVERY_S = 800, AGREED = 56 };

static void steps_that_fit(void **state)
{
    static const struct {
        int64_t steps, ns, every_ms, next;
    } rows[] = {
        {4, 4 * SECOND, 30000, 30},
        {30, 30 * SECOND, 30000, 30},
        {30, 60 * SECOND, 30000, 15},
        {4, SECOND / 10, 30000, 64}, /* 1,200 would fit, but four steps are a poor measure */
        {64, 90 * SECOND, 1000, 4},  /* so is one bad round */
        {4, 400 * SECOND, 30000, 1}, /* a step that takes longer than the round */
        {1, 1, 30000, 16},
        {4, 0, 30000, 64}, /* a clock that stands still */
        {900000, SECOND, 30000, 1000000},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(round_clock_next(rows[i].steps, rows[i].ns, rows[i].every_ms), rows[i].next);
}

/* ---- ranks */

struct setup {
    struct sync_spec spec;
    struct device *device;
    int64_t samples[2]; /* of rank 0 and rank 1, in a step */
};

static void member_step(struct sync *s, const struct setup *u, int rank)
{
    struct err e = {0};

    sync_at_step(s, 0);
    RANK_OK(sync_after_step(s, u->samples[rank], u->samples[0] + u->samples[1], &e), &e);
}

/* The clock of rank 0 says that the four steps took 100 s, that of rank 1 says 50 s. */
static void clocks_differ(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct coll_group *g = ranks_open(r, rank);
    struct sync_config c = {.spec = u->spec,
                            .rank = rank,
                            .world_size = r->world,
                            .count = COUNT,
                            .tail = TAIL,
                            .device = u->device,
                            .thread = 0};
    struct sync_array own[SYNC_MAX_ARRAYS];
    size_t arrays = sync_arrays(&c.spec, own);
    bool samples = u->samples[0] || u->samples[1];
    struct sync_round round;
    struct sync *s;
    struct err e = {0};

    RANK_OK(coll_alloc(g, COUNT, &c.params, &e), &e);
    RANK_OK(coll_alloc(g, COUNT, &c.grads, &e), &e);
    for (size_t i = 0; i < arrays; i++)
        RANK_OK(coll_alloc(g, COUNT, &c.arrays[i], &e), &e);
    RANK_OK(sync_open(&s, g, &c, &e), &e);
    sync_start(s);
    for (int i = 0; i < FIRST; i++) {
        if (i == FIRST - 1)
            s->clock.since_ns = clock_mono_ns() - (rank ? 50 : 100) * SECOND;
        member_step(s, u, rank);
    }
    /* The mean of 32 and 64 steps, weighted by samples. Without samples, no round changes. */
    RANK_CHECK(sync_settled(s) && sync_take_round(s, &round) && round.steps == FIRST);
    int64_t agreed = samples ? AGREED : FIRST;
    RANK_CHECK(s->round == agreed);
    for (int64_t i = 0; i < agreed; i++) {
        RANK_CHECK(!sync_take_round(s, &round));
        member_step(s, u, rank);
    }
    RANK_CHECK(sync_settled(s) && sync_take_round(s, &round) && round.steps == agreed);
    sync_close(s);
    coll_close(g);
}

static void ranks_agree_on_the_next_round(void **state)
{
    static const struct sync_spec specs[] = {
        {.type = SYNC_AVERAGE},
        {.type = SYNC_DILOCO, .outer_lr = 1.0, .fragments = 1}, /* the plain mean */
        {.type = SYNC_DILOCO, .outer_lr = 0.9, .outer_momentum = 0.6, .fragments = 1},
        {.type = SYNC_DILOCO, .outer_lr = 0.9, .fragments = 1, .wire = WIRE_INT4},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(specs); i++)
        for (int way = 0; way < 4; way++) {
            struct setup u = {.spec = specs[i], .device = &plain_device, .samples = {1, 3}};
            struct ranks r = {.world = 2, .node_of = {0, way & 1}, .arg = &u};

            if (way & 2)
                u.samples[0] = u.samples[1] = 0;
            u.spec.every = FIRST;
            u.spec.every_ms = EVERY_S * 1000;
            assert_true(ranks_run(&r, clocks_differ));
            ranks_release(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_fit),
        cmocka_unit_test(ranks_agree_on_the_next_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
