/* Tests how the samples of a step are divided among ranks of different speeds, and the sentence about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/job/balance.h"
#include "base/mem.h"
#include "base/random.h"

enum { RANKS_MOST = 9 };

static int64_t time_of(const struct balance_speed *speed, int64_t samples)
{
    return speed->update_ns + samples * speed->sample_ns;
}

/* Ranks take samples one by one: the next sample goes to the rank that would have it done first. */
static int64_t slowest_of_greedy(const struct balance_speed *speeds, int ranks, int64_t samples)
{
    int64_t portions[RANKS_MOST];

    for (int r = 0; r < ranks; r++)
        portions[r] = 1;
    for (int64_t left = samples - ranks; left > 0; left--) {
        int best = 0;
        for (int r = 1; r < ranks; r++)
            if (time_of(&speeds[r], portions[r] + 1) < time_of(&speeds[best], portions[best] + 1))
                best = r;
        portions[best]++;
    }
    return balance_slowest_ns(speeds, ranks, portions);
}

static void divides_all_samples_as_fast_as_can_be(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct random random = random_stream(seed, 1);
        const int ranks = 1 + (int)(random_u64(&random) % RANKS_MOST);
        const int64_t samples = ranks + (int64_t)(random_u64(&random) % 70);
        const int64_t range = (int64_t)1 << random_u64(&random) % 41;
        struct balance_speed speeds[RANKS_MOST];
        int64_t portions[RANKS_MOST], sum = 0;

        for (int r = 0; r < ranks; r++) {
            speeds[r].sample_ns = 1 + (int64_t)(random_u64(&random) % (uint64_t)range);
            speeds[r].update_ns =
                seed % 2 ? 0 : (int64_t)(random_u64(&random) % (uint64_t)(8 * range)) % BALANCE_NS_MOST;
        }
        balance_divide(speeds, ranks, samples, portions);
        for (int r = 0; r < ranks; r++) {
            assert_true(portions[r] >= 1);
            sum += portions[r];
        }
        assert_int_equal(sum, samples);
        assert_int_equal(balance_slowest_ns(speeds, ranks, portions),
                         slowest_of_greedy(speeds, ranks, samples));
    }
}

static void described_speeds_give_described_portions(void **state)
{
    static const struct {
        struct balance_speed speeds[4];
        int64_t samples, portions[4];
        int ranks;
    } rows[] = {
        {{{1000}, {3000}}, 32, {24, 8}, 2},
        {{{1000}, {1000}}, 33, {17, 16}, 2},
        {{{1000}, {4000}, {4000}, {1000}}, 40, {16, 4, 4, 16}, 4},
        {{{1}, {BALANCE_NS_MOST}, {1}}, 3, {1, 1, 1}, 3},
        {{{1}, {BALANCE_NS_MOST}}, 64, {63, 1}, 2},
        {{{BALANCE_NS_MOST, BALANCE_NS_MOST}, {BALANCE_NS_MOST}},
         BALANCE_SAMPLES_MOST - 1,
         {BALANCE_SAMPLES_MOST / 2 - 1, BALANCE_SAMPLES_MOST / 2},
         2},
        {{{7}}, 5, {5}, 1},
        /* The update takes the slow rank as long as 4 of its samples. */
        {{{1000, 4000}, {4000, 16000}}, 33, {29, 4}, 2},
        {{{1000, 0}, {1000, 50000}}, 33, {32, 1}, 2},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t portions[4];

        balance_divide(rows[i].speeds, rows[i].ranks, rows[i].samples, portions);
        for (int r = 0; r < rows[i].ranks; r++)
            assert_int_equal(portions[r], rows[i].portions[r]);
    }
}

static void less_than_5_percent_is_not_worth_a_change(void **state)
{
    static const struct balance_speed alike[] = {{100}, {100}}, unlike[] = {{100}, {101}},
                                      updates[] = {{100, 1000}, {100, 1000}};
    static const int64_t before[] = {20, 12}, same[] = {12, 20}, little[] = {13, 19}, more[] = {14, 18};

    (void)state;
    assert_false(balance_is_faster(alike, 2, before, same));
    assert_true(balance_is_faster(alike, 2, before, little)); /* 2000 to 1900 ns */
    assert_true(balance_is_faster(alike, 2, before, more));
    assert_false(balance_is_faster(unlike, 2, before, little));
    assert_false(balance_is_faster(updates, 2, before, little));
}

static void says_who_takes_how_many(void **state)
{
    static const struct {
        struct balance_rank ranks[10];
        size_t count;
        const char *text;
    } rows[] = {
        {{{0, "box1", 24, 1.0}, {1, "box2", 8, 3.1}},
         2,
         "balance: box1 24, box2 8 samples of 32: box2 takes 3.1 times as long"},
        {{{0, "box1", 16, 1.0}, {1, "box2", 16, 1.04}}, 2, "balance: box1 16, box2 16 samples of 32"},
        {{{0, "box1", 24, 0}, {1, "box2", 8, 0}}, 2, "balance: box1 24, box2 8 samples of 32"},
        {{{0, "box1", 9, 1}, {1, "box1", 9, 1}, {2, "box2", 7, 1}, {3, "box2", 7, 1.5}},
         4,
         "balance: box1 18, box2 14 samples of 32: box2 takes 1.5 times as long"},
        {{{0, "box1", 12, 1}, {1, "box1", 6, 2}, {2, "box2", 12, 1}},
         3,
         "balance: rank 0 12, rank 1 6, rank 2 12 samples of 30: rank 1 takes 2 times as long"},
        {{{0, "a", 24, 1}, {1, "a", 8, 3}},
         2,
         "balance: rank 0 24, rank 1 8 samples of 32: rank 1 takes 3 times as long"},
        {{{0, "a", 4, 2},
          {1, "b", 8, 1},
          {2, "c", 4, 2},
          {3, "d", 4, 2},
          {4, "e", 4, 2},
          {5, "f", 4, 2},
          {6, "g", 4, 2},
          {7, "h", 3, 4},
          {8, "i", 4, 2}},
         9,
         "balance: from 3 (rank 7) to 8 (rank 1) samples of 39: h takes 4 times as long"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(buf_release) struct buf text = {0};

        balance_print(&text, rows[i].ranks, rows[i].count);
        assert_string_equal(text.data, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divides_all_samples_as_fast_as_can_be),
        cmocka_unit_test(described_speeds_give_described_portions),
        cmocka_unit_test(less_than_5_percent_is_not_worth_a_change),
        cmocka_unit_test(says_who_takes_how_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
