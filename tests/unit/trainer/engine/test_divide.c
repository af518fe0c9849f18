/* How the parameters are divided among ranks, against a search through all divisions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "trainer/engine/divide.h"

static uint64_t random_state;

static size_t random_below(size_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % n;
}

/* Tensors begin at lines of 16 parameters, as models lay them out. */
static void random_model(struct model *m, struct model_tensor *tensors, size_t count)
{
    *m = (struct model){.tensors = tensors, .tensor_count = count};
    for (size_t i = 0; i < count; i++) {
        const size_t lines = 16 * (1 + random_below(20));

        tensors[i] = (struct model_tensor){.offset = m->count, .count = lines - random_below(16)};
        tensors[i].matrices = random_below(2) ? (int)(1 + random_below(3)) : 0;
        m->count += lines;
    }
}

static size_t tensor_end(const struct model *m, size_t i)
{
    return i + 1 < m->tensor_count ? m->tensors[i + 1].offset : m->count;
}

static bool in_matrix(const struct model *m, size_t offset)
{
    for (size_t i = 0; i < m->tensor_count; i++)
        if (m->tensors[i].matrices && offset > m->tensors[i].offset && offset < tensor_end(m, i))
            return true;
    return false;
}

static size_t floats_between(const struct model *m, size_t from, size_t to)
{
    size_t sum = 0;

    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct model_tensor *t = &m->tensors[i];
        size_t lo = from > t->offset ? from : t->offset, hi = to < tensor_end(m, i) ? to : tensor_end(m, i);

        sum += lo < hi ? (hi - lo) * (t->matrices ? 1 : 2) : 0;
    }
    return sum;
}

/* The smallest largest part over all ways to cut at the ends of blocks, by dynamic programming. */
static size_t best_division(const struct model *m, const struct divide *d, int world)
{
    size_t *best = calloc(d->block_count + 1, sizeof(*best)),
           *next = calloc(d->block_count + 1, sizeof(*next)), result;

    for (size_t i = 0; i <= d->block_count; i++)
        best[i] = floats_between(m, 0, d->blocks[i]);
    for (int r = 1; r < world; r++) {
        for (size_t i = 0; i <= d->block_count; i++) {
            next[i] = best[i];
            for (size_t k = 0; k < i; k++) {
                size_t last = floats_between(m, d->blocks[k], d->blocks[i]);
                size_t most = best[k] > last ? best[k] : last;

                if (!in_matrix(m, d->blocks[k]) && most < next[i])
                    next[i] = most;
            }
        }
        memcpy(best, next, (d->block_count + 1) * sizeof(*best));
    }
    result = best[d->block_count];
    free(best);
    free(next);
    return result;
}

static void matrices_stay_whole_and_the_largest_part_is_the_smallest_possible(void **state)
{
    (void)state;
    for (random_state = 1; random_state < 4000; random_state += 1000) {
        const uint64_t seed = random_state;
        struct model_tensor tensors[9];
        struct model m;

        random_model(&m, tensors, 9);
        for (int world = 1; world <= 8; world++) {
            struct train_spec spec = {.optimizer.type = OPTIMIZER_MUON};
            struct divide d;
            size_t largest = 0;

            divide_open(&d, &m, &spec, world);
            assert_int_equal(d.first[0], 0);
            assert_int_equal(d.first[world], d.block_count);
            assert_int_equal(d.blocks[0], 0);
            assert_int_equal(d.blocks[d.block_count], m.count);
            for (int r = 0; r < world; r++) {
                size_t from = d.blocks[d.first[r]],
                       floats = floats_between(&m, from, d.blocks[d.first[r + 1]]);

                assert_true(d.first[r] <= d.first[r + 1] && !in_matrix(&m, from));
                assert_true(d.first[r + 1] - d.first[r] <= divide_most(&d, world));
                largest = floats > largest ? floats : largest;
            }
            assert_int_equal(largest, best_division(&m, &d, world));
            divide_release(&d);
        }
        random_state = seed;
    }
}

/* The blocks do not depend on the number of ranks, and a tensor of matrices begins and ends with one. */
static void blocks_depend_on_the_model_alone(void **state)
{
    struct model_tensor tensors[9];
    struct model m;

    (void)state;
    random_state = 7;
    random_model(&m, tensors, 9);
    for (int type = OPTIMIZER_SGD; type <= OPTIMIZER_MUON; type++) {
        struct train_spec spec = {.optimizer.type = (enum optimizer_type)type};
        struct divide one, five;

        divide_open(&one, &m, &spec, 1);
        divide_open(&five, &m, &spec, 5);
        assert_int_equal(one.block_count, five.block_count);
        assert_memory_equal(one.blocks, five.blocks, (one.block_count + 1) * sizeof(*one.blocks));
        for (size_t i = 0; i < one.block_count; i++)
            assert_true(one.blocks[i] < one.blocks[i + 1] && one.blocks[i + 1] - one.blocks[i] <= 64);
        divide_release(&one);
        divide_release(&five);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_stay_whole_and_the_largest_part_is_the_smallest_possible),
        cmocka_unit_test(blocks_depend_on_the_model_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
