/* Tests that an epoch has every sample exactly once, whatever the world size, across stops and resizes; and
 * DistributedSampler's counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/random.h"
#include "trainer/data/sampler.h"

static struct sampler sampler_make(int64_t samples, int64_t global, int world)
{
    return (struct sampler){.samples = samples,
                            .global = global,
                            .accumulate = 1,
                            .seed = 3,
                            .shuffle = true,
                            .world_size = world};
}

/* Marks all ranks' samples of the step at the cursor. Returns their number. */
static int64_t take_step(struct sampler s, const struct cursor *c, int *seen)
{
    int64_t total = 0, rows = sampler_max_rows(&s);
    int64_t *index = xcalloc((size_t)rows, sizeof(*index));
    for (s.rank = 0; s.rank < s.world_size; s.rank++) {
        int64_t mine = 0;
        for (int64_t micro = 0; micro < sampler_micro_batches(&s); micro++) {
            struct sampler_batch b;
            sampler_batch(&s, c, micro, &b);
            assert_true(b.count <= rows);
            sampler_indices(&s, c, &b, index);
            for (int64_t i = 0; i < b.count; i++) {
                assert_in_range(index[i], 0, s.samples - 1);
                seen[index[i]]++;
            }
            mine += b.count;
        }
        assert_int_equal(mine, sampler_local_samples(&s, c));
        total += mine;
    }
    assert_int_equal(total, sampler_global_samples(&s, c));
    free(index);
    return total;
}

static void each_once(const int *seen, int64_t samples)
{
    for (int64_t i = 0; i < samples; i++)
        assert_int_equal(seen[i], 1);
}

static void every_sample_once_an_epoch(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 17, 64, 1000, 2048};
    static const int worlds[] = {1, 2, 3, 5, 8, 16};
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(sizes); n++)
        for (size_t w = 0; w < ARRAY_LEN(worlds); w++)
            for (int64_t accumulate = 1; accumulate <= 3; accumulate++) {
                struct sampler s = sampler_make(sizes[n], 7 * accumulate * worlds[w], worlds[w]);
                struct cursor c = {4, 0};
                int *seen = xcalloc((size_t)sizes[n], sizeof(*seen));
                int64_t steps = 0, whole = sampler_steps(&s);
                bool over = false;
                s.accumulate = accumulate;
                while (!over) {
                    assert_int_equal(sampler_steps_left(&s, &c), whole - steps);
                    take_step(s, &c, seen);
                    over = sampler_advance(&s, &c);
                    steps++;
                }
                assert_int_equal(steps, whole);
                assert_int_equal(c.epoch, 5);
                assert_int_equal(c.position, 0);
                each_once(seen, sizes[n]);
                free(seen);
            }
}

static void no_sample_lost_across_resizes(void **state)
{
    static const int worlds[] = {4, 1, 7, 16, 2, 3};
    int seen[1000] = {0};
    struct cursor c = {0, 0};
    bool over = false;
    (void)state;
    for (size_t i = 0; !over; i++) { /* another world size at every step */
        int world = worlds[i % ARRAY_LEN(worlds)];
        struct sampler s = sampler_make(1000, 9 * world, world);
        take_step(s, &c, seen);
        over = sampler_advance(&s, &c);
    }
    each_once(seen, 1000);
}

/* Divides `global` at random. Each rank gets at least one sample. */
static void bounds_draw(struct random *random, int64_t global, int world, int64_t *bounds)
{
    bounds[0] = 0;
    for (int r = 0; r < world; r++) {
        int64_t spare = global - bounds[r] - (world - r); /* beyond one for each rank that is left */
        bounds[r + 1] = bounds[r] + 1 + (int64_t)(random_u64(random) % (uint64_t)(spare + 1));
    }
    bounds[world] = global;
}

/* Ranks of unlike portions, which change at every step, as the world size does and whether there are portions. take_step checks
 * that no micro-batch is larger than without them. */
static void every_sample_once_with_unlike_portions(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct random random = random_stream(seed, 0);
        const int64_t samples = 1 + (int64_t)(random_u64(&random) % 700);
        const int64_t global = 8 + (int64_t)(random_u64(&random) % 90);
        struct cursor c = {3, 0};
        int *seen = xcalloc((size_t)samples, sizeof(*seen));
        int64_t steps = 0;
        bool over = false;
        while (!over) {
            int64_t bounds[9];
            const int world = 1 + (int)(random_u64(&random) % 8);
            struct sampler s = sampler_make(samples, global, world);
            s.accumulate = 1 + (int64_t)(random_u64(&random) % 3);
            bounds_draw(&random, global, world, bounds);
            if (random_u64(&random) % 4)
                s.bounds = bounds;
            take_step(s, &c, seen);
            over = sampler_advance(&s, &c);
            steps++;
        }
        assert_int_equal(steps, (samples + global - 1) / global);
        each_once(seen, samples);
        free(seen);
    }
}

static void whole_steps_follow_the_bounds(void **state)
{
    static const int64_t bounds[] = {0, 24, 25, 32};
    struct sampler s = sampler_make(1000, 32, 3);
    const struct cursor whole = {0, 64}, half = {0, 984};
    (void)state;
    s.bounds = bounds;
    for (s.rank = 0; s.rank < 3; s.rank++) {
        static const int64_t micros[] = {3, 1, 1}, halves[] = {12, 0, 4}; /* 11 rows at most */
        struct sampler_batch b;
        assert_int_equal(sampler_local_samples(&s, &whole), bounds[s.rank + 1] - bounds[s.rank]);
        assert_int_equal(sampler_local_samples(&s, &half), halves[s.rank]);
        assert_int_equal(sampler_micro_batches(&s), micros[s.rank]);
        sampler_batch(&s, &whole, 0, &b);
        assert_int_equal(b.first, 64 + bounds[s.rank]);
    }
}

static void order_is_that_of_one_rank(void **state)
{
    struct sampler one = sampler_make(500, 40, 1), four = sampler_make(500, 40, 4);
    struct cursor c = {2, 120};
    struct sampler_batch b;
    int64_t all[40], part[10];
    (void)state;
    sampler_batch(&one, &c, 0, &b);
    sampler_indices(&one, &c, &b, all);
    for (four.rank = 0; four.rank < 4; four.rank++) {
        sampler_batch(&four, &c, 0, &b);
        sampler_indices(&four, &c, &b, part);
        for (int i = 0; i < 10; i++)
            assert_int_equal(part[i], all[four.rank + 4 * i]);
    }
}

static void the_tutorials_step_counts(void **state)
{
    static const struct {
        int world;
        int64_t steps;
    } rows[] = {{1, 64}, {2, 32}, {4, 16}, {16, 4}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct sampler s = sampler_make(2048, 32 * rows[i].world, rows[i].world);
        assert_int_equal(sampler_steps(&s), rows[i].steps);
    }
}

/* Each rank gets ceil(n / world) samples; the missing ones are taken from the start of the epoch. */
static void pad_repeats_from_the_start(void **state)
{
    int seen[10] = {0};
    struct sampler s = sampler_make(10, 8, 4);
    struct cursor c = {0, 8};
    int64_t twice = 0;
    (void)state;
    s.pad = true;
    assert_int_equal(sampler_steps(&s), 2);
    assert_int_equal(take_step(s, &c, seen), 4);
    for (s.rank = 0; s.rank < 4; s.rank++)
        assert_int_equal(sampler_local_samples(&s, &c), 1);
    s.rank = 0;
    assert_int_equal(seen[sampler_permute(&s, 0, 0)], 1);
    assert_int_equal(seen[sampler_permute(&s, 0, 1)], 1);
    c.position = 0;
    take_step(s, &c, seen);
    for (int i = 0; i < 10; i++)
        twice += seen[i] == 2;
    assert_int_equal(twice, 2);
}

static void epochs_and_seeds_reshuffle(void **state)
{
    struct sampler s = sampler_make(1000, 10, 1), other = s;
    int same_epoch = 0, same_seed = 0, in_place = 0;
    (void)state;
    other.seed = 4;
    for (int64_t i = 0; i < 1000; i++) {
        same_epoch += sampler_permute(&s, 0, i) == sampler_permute(&s, 1, i);
        same_seed += sampler_permute(&s, 0, i) == sampler_permute(&other, 0, i);
        in_place += sampler_permute(&s, 0, i) == i;
    }
    assert_in_range(same_epoch, 0, 10);
    assert_in_range(same_seed, 0, 10);
    assert_in_range(in_place, 0, 10);
    s.shuffle = false;
    assert_int_equal(sampler_permute(&s, 3, 77), 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once_an_epoch),
        cmocka_unit_test(no_sample_lost_across_resizes),
        cmocka_unit_test(every_sample_once_with_unlike_portions),
        cmocka_unit_test(whole_steps_follow_the_bounds),
        cmocka_unit_test(order_is_that_of_one_rank),
        cmocka_unit_test(the_tutorials_step_counts),
        cmocka_unit_test(pad_repeats_from_the_start),
        cmocka_unit_test(epochs_and_seeds_reshuffle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
