/* Parameters packed by all ranks of a world, against a copy of each value from the rank that owns it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/engine/packed.h"

#define TENSORS 11

static uint64_t random_state;

static size_t random_below(size_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % n;
}

static void random_model(struct model *m, struct model_tensor *tensors)
{
    *m = (struct model){.tensors = tensors, .tensor_count = TENSORS};
    for (size_t i = 0; i < TENSORS; i++) {
        const size_t lines = 16 * (1 + random_below(30));

        tensors[i] = (struct model_tensor){.offset = m->count, .count = lines - random_below(16)};
        tensors[i].narrow_only = random_below(2);
        tensors[i].matrices = tensors[i].narrow_only;
        m->count += lines;
    }
}

static bool is_narrow_only(const struct model *m, size_t at)
{
    size_t i = 0;
    while (i + 1 < m->tensor_count && m->tensors[i + 1].offset <= at)
        i++;
    return m->tensors[i].narrow_only;
}

struct rank {
    struct engine n;
    struct model m;
    struct packed p;
    float *before; /* the parameters, before others' came */
};

/* Where the packed array is cut into pieces. */
struct cuts {
    size_t at[6], count;
};

static void random_cuts(const struct model *m, struct cuts *c)
{
    c->count = random_below(6);
    for (size_t i = 0; i < c->count; i++) {
        const size_t from = i ? c->at[i - 1] : 0;
        c->at[i] = from + 16 * random_below((m->count - from) / 16 + 1);
    }
}

static void rank_open(struct rank *k, struct device *d, const struct train_spec *spec, struct optim *o,
                      const struct model *m, const struct cuts *cuts, int rank, int world)
{
    struct err e;
    k->m = *m;
    k->m.device = d;
    k->m.narrowed = calloc(m->count, sizeof(uint16_t));
    k->before = calloc(m->count, sizeof(*k->before));
    k->n = (struct engine){.spec = spec, .device = d, .model = &k->m, .optim = o};
    assert_int_equal(device_array_open(&k->n.params, d, m->count + TAIL_FLOATS, &e), ERR_OK);
    assert_int_equal(device_array_open(&k->n.grads, d, m->count + TAIL_FLOATS, &e), ERR_OK);
    for (size_t i = 0; i < m->count; i++)
        k->before[i] = k->n.params.data[i] = (float)(random_below(2000000)) / 1e6f - 1.0f;
    for (size_t i = 0; i < TAIL_FLOATS; i++)
        k->n.grads.data[m->count + i] = (float)i;
    assert_true(packed_open(&k->p, &k->n, rank, world, cuts->at, cuts->count));
}

static void rank_close(struct rank *k)
{
    packed_release(&k->p);
    device_array_close(&k->n.params);
    device_array_close(&k->n.grads);
    free(k->m.narrowed);
    free(k->before);
}

static void rank_check(const struct rank *all, int rank, const size_t *parts)
{
    const struct rank *k = &all[rank];
    struct device *d = k->n.device;
    int owner = 0;
    for (size_t i = 0; i < k->m.count; i++) {
        uint16_t half;
        while (i >= parts[owner + 1])
            owner++;
        const float theirs = all[owner].before[i], here = k->n.params.data[i];
        d->ops->narrow(d, &half, &theirs, 1);
        assert_int_equal(((uint16_t *)k->m.narrowed)[i], half);
        assert_true(here == (is_narrow_only(&k->m, i) ? k->before[i] : theirs));
    }
    for (size_t i = 0; i < TAIL_FLOATS; i++)
        assert_true(k->n.grads.data[k->m.count + i] == (float)i);
}

/* Rounds this rank's part of the parameters to bf16, into `narrowed`. An update in bf16 does the same. */
static void own_part_narrow(struct rank *k, const size_t *parts, int rank)
{
    uint16_t *half = k->m.narrowed;
    k->n.device->ops->narrow(k->n.device, half + parts[rank], k->n.params.data + parts[rank],
                             parts[rank + 1] - parts[rank]);
}

static void world_gathers(struct device *d, const struct train_spec *spec, const struct model *m, int world,
                          bool narrows)
{
    uint16_t some;
    struct optim o = {.part = true, .narrowed = narrows ? &some : NULL};
    struct rank *all = xcalloc((size_t)world, sizeof(*all));
    size_t *parts = xcalloc((size_t)world + 1, sizeof(*parts));
    struct cuts cuts;
    random_cuts(m, &cuts);
    for (int r = 0; r < world; r++) {
        rank_open(&all[r], d, spec, &o, m, &cuts, r, world);
        assert_true(engine_divide(&all[r].n, world, parts));
        if (narrows)
            own_part_narrow(&all[r], parts, r);
        packed_put(&all[r].p, &all[r].n);
        assert_memory_equal(all[r].p.offsets, all[0].p.offsets, ((size_t)world + 1) * sizeof(size_t));
    }
    /* A piece of the packed array after the other; what is in none before it stays as it is. */
    const size_t *offsets = all[0].p.offsets;
    for (size_t i = 0; i <= cuts.count; i++) {
        const size_t lo = i ? cuts.at[i - 1] : 0, hi = i < cuts.count ? cuts.at[i] : m->count;
        const size_t from = packed_at(&all[0].p, lo), end = packed_at(&all[0].p, hi);
        assert_true(from <= end && (hi < m->count || end == offsets[world]));
        for (int to = 0; to < world; to++)
            for (int r = 0; r < world; r++)
                for (size_t at = from; at < end && to != r; at++)
                    if (at >= offsets[r] && at < offsets[r + 1])
                        all[to].n.grads.data[at] = all[r].n.grads.data[at];
        for (int r = 0; r < world; r++)
            packed_take(&all[r].p, &all[r].n, lo, hi);
    }
    for (int r = 0; r < world; r++)
        rank_check(all, r, parts);
    for (int r = 0; r < world; r++)
        rank_close(&all[r]);
    free(parts);
    free(all);
}

static void each_value_comes_from_its_owner(void **state)
{
    struct device *d = NULL;
    struct err e;
    (void)state;
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 1, &e), ERR_OK);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct model_tensor tensors[TENSORS];
        struct model m;
        struct train_spec spec = {.shard = SHARD_OPTIMIZER,
                                  .optimizer.type = seed % 2 ? OPTIMIZER_ADAMW : OPTIMIZER_MUON};
        random_state = seed * 1000;
        random_model(&m, tensors);
        for (int world = 2; world <= 9; world++)
            world_gathers(d, &spec, &m, world, seed % 4 > 1);
        world_gathers(d, &spec, &m, 100, seed % 4 > 1); /* more ranks than blocks */
    }
    device_close(d);
}

static void nothing_is_packed_without_need(void **state)
{
    struct model_tensor tensors[TENSORS];
    struct model m;
    struct train_spec spec = {.shard = SHARD_OPTIMIZER, .optimizer.type = OPTIMIZER_ADAMW};
    struct optim whole = {0}, part = {.part = true};
    struct engine n = {.spec = &spec, .model = &m, .optim = &part};
    struct packed p;
    uint16_t half;
    (void)state;
    random_model(&m, tensors);
    assert_false(packed_open(&p, &n, 0, 2, NULL, 0)); /* no bf16 copy */
    m.narrowed = &half;
    assert_false(packed_open(&p, &n, 0, 1, NULL, 0));
    n.optim = &whole;
    assert_false(packed_open(&p, &n, 0, 2, NULL, 0));
    packed_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_comes_from_its_owner),
        cmocka_unit_test(nothing_is_packed_without_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
