/* Other values for a strategy while the run goes on: the result is that of a strategy that is opened again with them. */
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

static const struct sync_tensor tensors[] = {{0, 333}, {336, 100}, {448, 65},
                                             {528, 1}, {544, 400}, {960, 75}};
#define TENSORS (sizeof(tensors) / sizeof(tensors[0]))
enum { TAIL = 3, PARAMS = 1040, COUNT = PARAMS + TAIL, EVERY = 6, STEPS = 40 };
#define RATE 0.05f

struct change {
    struct sync_spec from, to;
    int after;    /* the first boundary at or after this number of steps */
    bool reopen;  /* in place of sync_tune */
    bool back;    /* at the next boundary */
    bool refused; /* sync_tune must refuse `to`, and the run goes on by `from` */
};

/* ---- a run of one rank */

struct member {
    struct coll_group *group;
    struct sync_config config;
    struct sync *sync;
};

static void member_open(struct ranks *r, int rank, const struct sync_spec *spec, struct member *m)
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
                                     .bucket = 300};
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.params, &e), &e);
    RANK_OK(coll_alloc(m->group, COUNT, &m->config.grads, &e), &e);
    for (size_t i = 0; i < count; i++)
        RANK_OK(coll_alloc(m->group, COUNT, &m->config.arrays[i], &e), &e);
    RANK_OK(sync_open(&m->sync, m->group, &m->config, &e), &e);
    for (size_t i = 0; i < PARAMS; i++)
        m->config.params[i] = (float)(i % 7) * 0.25f - 0.5f;
    sync_start(m->sync);
}

/* Goes on by `spec` as a restarted rank does that has the same arrays. */
static void member_reopen(struct member *m, const struct sync_spec *spec)
{
    struct sync_state state;
    struct err e = {0};

    sync_save(m->sync, &state);
    if (state.turn)
        state.steps = -1; /* counted by the former `every`, so it must not tell the turn */
    sync_close(m->sync);
    m->config.spec = *spec;
    RANK_OK(sync_open(&m->sync, m->group, &m->config, &e), &e);
    sync_load(m->sync, &state);
}

/* One step on a quadratic loss whose minimum depends on the rank. Each rank sees a sample a step. */
static void member_step(struct member *m, int step)
{
    struct err e = {0};

    sync_at_step(m->sync, step, STEPS);
    float divisor = (float)sync_divisor(m->sync, 1, m->config.world_size);
    for (size_t i = 0; i < PARAMS; i++)
        m->config.grads[i] =
            (m->config.params[i] - (float)(m->config.rank + 1) * 0.25f - (float)(i % 17) * 0.125f) / divisor;
    RANK_OK(sync_before_step(m->sync, &e), &e);
    for (size_t i = 0; i < PARAMS; i++)
        m->config.params[i] -= RATE * m->config.grads[i];
    RANK_OK(sync_after_step(m->sync, 1, m->config.world_size, &e), &e);
}

static void member_change(struct member *m, const struct change *c, const struct sync_spec *to)
{
    struct err e = {0};

    if (c->reopen)
        member_reopen(m, to);
    else if (c->refused)
        RANK_CHECK(sync_tune(m->sync, to, &e) == ERR_FAILED_PRECONDITION && strstr(e.msg, "sync."));
    else
        RANK_OK(sync_tune(m->sync, to, &e), &e);
}

/* Leaves rank 0's bytes in code[0], and in `result` at which steps a boundary was. */
static void train_rank(struct ranks *r, int rank)
{
    const struct change *c = r->arg;
    struct coll_stats stats;
    struct err e = {0};
    struct member m;
    uint64_t hash = 0;
    int changes = 0;

    member_open(r, rank, &c->from, &m);
    for (int step = 0; step < STEPS; step++) {
        member_step(&m, step);
        hash = hash * 31 + ranks_hash(m.config.params, PARAMS * sizeof(float));
        if (rank == 0)
            r->shared->result[step] = sync_voted(m.sync) ? 'x' : '.';
        if (sync_voted(m.sync) && step + 1 >= c->after && changes < (c->back ? 2 : 1))
            member_change(&m, c, changes++ ? &c->from : &c->to);
    }
    RANK_OK(sync_settle(m.sync, &e), &e);
    RANK_CHECK(changes == (c->back ? 2 : 1));
    coll_get_stats(m.group, &stats);
    r->shared->hash[rank] = hash * 31 + ranks_hash(m.config.params, PARAMS * sizeof(float));
    r->shared->code[rank] = (int)stats.bytes;
    sync_close(m.sync);
    coll_close(m.group);
}

struct outcome {
    uint64_t hash[RANKS_MAX];
    char boundaries[STEPS + 1];
};

static struct outcome run_layout(const struct ranks *layout, const struct change *c)
{
    struct ranks r = *layout;
    struct outcome out = {0};

    r.arg = c;
    r.pairs = sync_wants_pairs(&c->from, r.world);
    assert_true(ranks_run(&r, train_rank));
    memcpy(out.hash, r.shared->hash, sizeof(out.hash));
    memcpy(out.boundaries, r.shared->result, STEPS);
    ranks_release(&r);
    return out;
}

static const struct ranks layouts[] = {{.world = 1}, {.world = 3, .node_of = {0, 0, 1}}};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static void check_equals_reopened(struct change c)
{
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct change again = c, unchanged = c;

        again.reopen = true;
        unchanged.to = c.from;
        struct outcome tuned = run_layout(&layouts[l], &c), reopened = run_layout(&layouts[l], &again);
        assert_string_equal(tuned.boundaries, reopened.boundaries);
        assert_memory_equal(tuned.hash, reopened.hash, sizeof(tuned.hash));
        if (c.back)
            continue;
        struct outcome plain_run = run_layout(&layouts[l], &unchanged);
        assert_memory_not_equal(tuned.hash, plain_run.hash, sizeof(tuned.hash));
    }
}

static struct change diloco_of(enum wire_type wire)
{
    struct change c = {.from = {.type = SYNC_DILOCO,
                                .every = EVERY,
                                .outer_lr = 0.9,
                                .outer_momentum = 0.6,
                                .wire = wire,
                                .fragments = 1,
                                .mix = 0.25},
                       .after = 10};

    c.to = c.from;
    return c;
}

/* ---- tests */

static void rounds_become_longer_and_shorter(void **state)
{
    struct change c = diloco_of(WIRE_FP32);
    struct ranks three = layouts[1];
    struct outcome o;

    (void)state;
    c.to.every = 9;
    o = run_layout(&three, &c);
    assert_string_equal(o.boundaries, ".....x.....x........x........x........x.");
    c.to.every = 2;
    o = run_layout(&three, &c);
    assert_string_equal(o.boundaries, ".....x.....x.x.x.x.x.x.x.x.x.x.x.x.x.x.x");
    c.back = true;
    o = run_layout(&three, &c);
    assert_string_equal(o.boundaries, ".....x.....x.x.....x.....x.....x.....x..");
}

static void tuned_rounds_are_those_of_a_reopened_strategy(void **state)
{
    static const enum wire_type wires[] = {WIRE_FP32, WIRE_INT4};

    (void)state;
    for (size_t k = 0; k < 2; k++)
        for (int way = 0; way < 4; way++) {
            struct change c = diloco_of(wires[k]);

            c.from.overlap = way & 1;
            c.from.fragments = way & 2 ? 3 : 1;
            c.to = c.from;
            c.to.every = 12;
            c.to.outer_lr = 0.7;
            c.to.outer_momentum = 0.9;
            c.to.mix = 0.5;
            c.to.overlap = way & 1 ? 3 : 0;
            check_equals_reopened(c);
            c.to.every = 3 + (way & 1 ? 9 : 0);
            c.back = true;
            check_equals_reopened(c);
        }
}

static void averaging_is_tuned(void **state)
{
    struct change c = {
        .from = {.type = SYNC_AVERAGE, .every = 6}, .to = {.type = SYNC_AVERAGE, .every = 4}, .after = 1};
    struct ranks three = layouts[1];
    struct change again = c;

    (void)state;
    again.reopen = true;
    struct outcome tuned = run_layout(&three, &c), reopened = run_layout(&three, &again);
    assert_string_equal(tuned.boundaries, ".....x...x...x...x...x...x...x...x...x..");
    assert_memory_equal(tuned.hash, reopened.hash, sizeof(tuned.hash));
}

/* After a step of all-reduce, each step is a boundary. */
static void steps_of_all_reduce_become_fewer_and_more(void **state)
{
    struct change c = diloco_of(WIRE_FP32);
    struct ranks three = layouts[1];

    (void)state;
    c.from.warm = 12;
    c.to = c.from;
    c.to.warm = 14;
    c.after = 12; /* the last that is possible */
    check_equals_reopened(c);
    assert_string_equal(run_layout(&three, &c).boundaries, "xxxxxxxxxxxxxx.....x.....x.....x.....x..");
    c.to.warm = 5;
    c.after = 7;
    assert_string_equal(run_layout(&three, &c).boundaries, "xxxxxxx.....x.....x.....x.....x.....x...");
    c.refused = true; /* after the first round, ranks have moments of their own */
    c.to.warm = 30;
    c.after = 13;
    assert_string_equal(run_layout(&three, &c).boundaries, "xxxxxxxxxxxx.....x.....x.....x.....x....");
}

static void values_that_need_other_arrays_are_refused(void **state)
{
    struct change c = diloco_of(WIRE_INT4), plain_run = c;
    struct ranks three = layouts[1];
    struct sync_spec others[8];

    (void)state;
    for (size_t i = 0; i < 8; i++)
        others[i] = c.from;
    others[0].type = SYNC_AVERAGE;
    others[1].wire = WIRE_INT8;
    others[2].fragments = 2;
    others[3].outer_momentum = 0;
    others[4].overlap = 1;
    others[5].warm = 30; /* there was no all-reduce */
    others[6].fragments = 0;
    others[7].type = SYNC_ALLREDUCE;
    struct outcome want = run_layout(&three, &plain_run);
    c.refused = true;
    for (size_t i = 0; i < 8; i++) {
        c.to = others[i];
        c.to.every = 3; /* and nothing of it is taken */
        assert_memory_equal(run_layout(&three, &c).hash, want.hash, sizeof(want.hash));
    }
}

static void a_boundary_lies_between_exchanges(struct ranks *r, int rank)
{
    const struct change *c = r->arg;
    struct err e = {0};
    struct member m;

    member_open(r, rank, &c->from, &m);
    for (int step = 0; step < EVERY; step++)
        member_step(&m, step);
    RANK_CHECK(sync_tune(m.sync, &c->from, &e) == ERR_FAILED_PRECONDITION);
    RANK_OK(sync_join(m.sync, &e), &e);
    RANK_OK(sync_tune(m.sync, &c->from, &e), &e);
    sync_close(m.sync);
    coll_close(m.group);
}

static void nothing_changes_while_an_exchange_is_under_way(void **state)
{
    struct change c = diloco_of(WIRE_FP32);
    struct ranks two = {.world = 2, .arg = &c};

    (void)state;
    c.from.overlap = 2;
    assert_true(ranks_run(&two, a_boundary_lies_between_exchanges));
    ranks_release(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_become_longer_and_shorter),
        cmocka_unit_test(tuned_rounds_are_those_of_a_reopened_strategy),
        cmocka_unit_test(averaging_is_tuned),
        cmocka_unit_test(steps_of_all_reduce_become_fewer_and_more),
        cmocka_unit_test(values_that_need_other_arrays_are_refused),
        cmocka_unit_test(nothing_changes_while_an_exchange_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
