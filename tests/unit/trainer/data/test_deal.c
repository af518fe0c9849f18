/* Samples dealt to ranks that take unlike numbers of them: each sample of an epoch is taken once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "trainer/data/deal.h"

enum { RANKS_MOST = 5, SAMPLES = 1000, EPOCHS = 7, FIT_MOST = 60 };

/* Some ranks are much slower than others, and all speeds change from round to round. */
static int64_t next_fit(struct random *r, int rank)
{
    return 1 + (int64_t)(random_u64(r) % (uint64_t)(rank % 3 == 2 ? FIT_MOST / 10 : FIT_MOST));
}

/* Counts how often each sample of each epoch was taken. The order of samples of an epoch is its own, so samples are told
 * apart by their place in the order. */
static void take_samples(const struct deal *d, int64_t from, int64_t count, int *seen)
{
    for (size_t i = 0; i < d->count && count > 0; i++) {
        const struct deal_piece *p = &d->pieces[i];
        for (; from < p->count && count > 0; from++, count--)
            seen[p->epoch * SAMPLES + p->position + from]++;
        from -= p->count;
    }
    assert_int_equal(count, 0);
}

/* One round: each rank takes up to its limit. Returns what all have taken. */
static int64_t make_round(struct deal *d, struct random *r, int ranks, int64_t left, int *seen)
{
    int64_t fits[RANKS_MOST], most[RANKS_MOST], taken[RANKS_MOST], all = 0, sum = 0;
    for (int k = 0; k < ranks; k++)
        fits[k] = next_fit(r, k);
    deal_limits(fits, ranks, left, most);
    for (int k = 0; k < ranks; k++)
        all += most[k];
    deal_extend(d, SAMPLES, all);
    all = 0;
    for (int k = 0; k < ranks; all += most[k++]) {
        int64_t can = next_fit(r, k);
        taken[k] = can < most[k] ? can : most[k];
        take_samples(d, all, taken[k], seen);
        sum += taken[k];
    }
    for (int k = ranks - 1; k >= 0; k--) {
        all -= most[k];
        deal_remove(d, all, taken[k]);
    }
    return sum;
}

/* A snapshot has the pieces and the place behind them. */
static void deal_resume(struct deal *d)
{
    struct deal old = *d;
    *d = (struct deal){0};
    deal_start(d, &old.next, old.pieces, old.count);
    deal_release(&old);
}

static void each_sample_is_taken_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct random r = random_stream(seed, 0);
        struct deal d = {0};
        const struct cursor start = {0, 0};
        int ranks = 1 + (int)(seed % RANKS_MOST), *seen = xcalloc((EPOCHS + 2) * SAMPLES, sizeof(*seen));
        int64_t left = EPOCHS * SAMPLES;
        deal_start(&d, &start, NULL, 0);
        for (int round = 0; left > 0; round++) {
            int64_t sum = make_round(&d, &r, ranks, left, seen);
            assert_true(sum > 0);
            left -= sum;
            assert_true(d.count <= 6 * RANKS_MOST); /* a snapshot has room for few */
            if (round % 20 == 19) {                 /* the world size changes, too */
                deal_resume(&d);
                ranks = 1 + ranks % RANKS_MOST;
            }
        }
        assert_int_equal(left, 0);
        assert_int_equal(d.count, 0);
        for (int i = 0; i < (EPOCHS + 2) * SAMPLES; i++)
            assert_int_equal(seen[i], i < EPOCHS * SAMPLES);
        deal_release(&d);
        free(seen);
    }
}

static void limits_are_twice_what_fits(void **state)
{
    const int64_t fits[3] = {10, 20, 5};
    int64_t most[3];

    (void)state;
    deal_limits(fits, 3, 70, most);
    assert_true(most[0] == 20 && most[1] == 40 && most[2] == 10);
    deal_limits(fits, 3, 69, most); /* in proportion, and all of them */
    assert_true(most[0] == 19 && most[1] == 40 && most[2] == 10);
    deal_limits(fits, 3, 1, most);
    assert_int_equal(most[0] + most[1] + most[2], 1);
    deal_limits(fits, 3, 0, most);
    assert_int_equal(most[0] + most[1] + most[2], 0);
}

static void samples_come_in_the_order_of_the_epochs(void **state)
{
    const struct sampler s = {
        .samples = 10, .global = 4, .accumulate = 1, .seed = 3, .shuffle = true, .world_size = 1};
    const struct cursor next = {1, 4};
    const struct deal_piece back[] = {{0, 2, 2}, {0, 4, 1}, {1, 0, 1}};
    struct deal d = {0};
    int64_t index[12], want[12];

    (void)state;
    deal_start(&d, &next, back, 3);
    assert_int_equal(d.count, 2); /* the first two continue each other */
    deal_extend(&d, 10, 12);
    for (int i = 0; i < 12; i++)
        want[i] = i < 3    ? sampler_permute(&s, 0, 2 + i)
                  : i < 4  ? sampler_permute(&s, 1, 0)
                  : i < 10 ? sampler_permute(&s, 1, i)
                           : sampler_permute(&s, 2, i - 10);
    deal_indices(&d, &s, 0, 12, index);
    assert_memory_equal(index, want, sizeof(want));
    deal_indices(&d, &s, 3, 5, index);
    assert_memory_equal(index, want + 3, 5 * sizeof(*want));
    assert_true(d.next.epoch == 2 && d.next.position == 2);
    deal_release(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_is_taken_once),
        cmocka_unit_test(limits_are_twice_what_fits),
        cmocka_unit_test(samples_come_in_the_order_of_the_epochs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
