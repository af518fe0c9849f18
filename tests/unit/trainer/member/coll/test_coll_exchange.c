/* Tests the collectives that move bytes without adding: broadcast, allgather and exchange. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/member/coll/layouts.h"

static const size_t sizes[] = {0, 1, 7, 4096, 4097, 262144, 600001};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void bytes_fill(unsigned char *data, size_t size, int salt)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(i * 7 + (size_t)salt * 13 + 1);
}

static void pass_everything(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    size_t most = sizes[SIZES - 1];
    unsigned char *data = malloc(most), *want = malloc(most), *all = malloc(most * (size_t)r->world);
    struct err e = {0};

    for (int root = 0; root < r->world; root++)
        for (size_t s = 0; s < SIZES; s++) {
            bytes_fill(want, sizes[s], root);
            memset(data, 0, most);
            if (rank == root)
                bytes_fill(data, sizes[s], root);
            RANK_OK(coll_broadcast(g, data, sizes[s], root, &e), &e);
            RANK_CHECK(!memcmp(data, want, sizes[s]));
        }
    for (size_t s = 0; s < SIZES; s++) {
        bytes_fill(data, sizes[s], rank);
        RANK_OK(coll_allgather(g, data, sizes[s], all, &e), &e);
        for (int k = 0; k < r->world; k++) {
            bytes_fill(want, sizes[s], k);
            RANK_CHECK(!memcmp(all + (size_t)k * sizes[s], want, sizes[s]));
        }
        /* In place, too. */
        memset(all, 0, most * (size_t)r->world);
        bytes_fill(all + (size_t)rank * sizes[s], sizes[s], rank);
        RANK_OK(coll_allgather(g, all + (size_t)rank * sizes[s], sizes[s], all, &e), &e);
        for (int k = 0; k < r->world; k++) {
            bytes_fill(want, sizes[s], k);
            RANK_CHECK(!memcmp(all + (size_t)k * sizes[s], want, sizes[s]));
        }
    }
    free(data);
    free(want);
    free(all);
    coll_close(g);
}

static void broadcast_and_allgather_bring_every_byte(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r;

        with_layout(&r, &layouts[l]);
        if (!ranks_run(&r, pass_everything))
            fail_msg("layout %s", layouts[l].name);
        ranks_release(&r);
    }
}

/* Parts of unequal sizes; the last rank gets nothing. */
static void cut_parts(size_t size, int world, size_t *offsets)
{
    for (int k = 0; k < world; k++)
        offsets[k] = world == 1 ? 0 : size * (size_t)(k * k) / (size_t)((world - 1) * (world - 1));
    offsets[world] = size;
}

static void exchange_everything(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    size_t most = sizes[SIZES - 1], offsets[9];
    unsigned char *data = malloc(most), *want = malloc(most), *got = malloc(most * (size_t)r->world);
    struct err e = {0};

    for (size_t s = 0; s < SIZES; s++) {
        cut_parts(sizes[s], r->world, offsets);
        size_t at = offsets[rank], part = offsets[rank + 1] - at;

        bytes_fill(data, sizes[s], rank);
        RANK_OK(coll_exchange(g, data, offsets, got, &e), &e);
        for (int k = 0; k < r->world; k++) {
            bytes_fill(want, sizes[s], k);
            RANK_CHECK(!memcmp(got + (size_t)k * part, want + at, part));
        }
        RANK_OK(coll_allgather(g, data, sizes[s], got, &e), &e); /* calls of two kinds in turn */
    }
    free(data);
    free(want);
    free(got);
    coll_close(g);
}

static void an_exchange_brings_each_rank_its_part_of_all(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r;

        with_layout(&r, &layouts[l]);
        r.pairs = true;
        if (!ranks_run(&r, exchange_everything))
            fail_msg("layout %s", layouts[l].name);
        ranks_release(&r);
    }
}

/* More peers than a rank connects to at the same time. */
static void exchange_ranks(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    size_t offsets[RANKS_MAX + 1];
    unsigned char mine[RANKS_MAX], got[RANKS_MAX];
    struct err e = {0};

    for (int k = 0; k <= r->world; k++)
        offsets[k] = (size_t)k;
    for (int k = 0; k < r->world; k++)
        mine[k] = (unsigned char)(rank ^ (3 * k));
    RANK_OK(coll_exchange(g, mine, offsets, got, &e), &e);
    for (int k = 0; k < r->world; k++)
        RANK_CHECK(got[k] == (unsigned char)(k ^ (3 * rank)));
    coll_close(g);
}

static void many_ranks_exchange(void **state)
{
    struct ranks r = {.world = 40, .pairs = true};

    (void)state;
    for (int k = 0; k < r.world; k++)
        r.node_of[k] = k;
    assert_true(ranks_run(&r, exchange_ranks));
    ranks_release(&r);
}

static void exchange_much(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    size_t offsets[] = {0, 250000, 500000, 750000, 1000000};
    char *data = calloc(1, 1000000), *got = malloc(1000000);
    struct coll_stats before, after;
    struct err e = {0};

    coll_get_stats(g, &before);
    RANK_OK(coll_exchange(g, data, offsets, got, &e), &e);
    coll_get_stats(g, &after);
    r->shared->code[rank] = (int)(after.bytes - before.bytes);
    free(data);
    free(got);
    coll_close(g);
}

/* Nothing is passed on by a third rank. */
static void an_exchange_sends_each_part_once(void **state)
{
    struct ranks far = {.world = 4, .node_of = {0, 1, 2, 3}, .pairs = true};
    struct ranks near = {.world = 4};

    (void)state;
    assert_true(ranks_run(&far, exchange_much));
    assert_true(ranks_run(&near, exchange_much));
    for (int k = 0; k < 4; k++) {
        assert_in_range(far.shared->code[k], 750000, 750000 + 100);
        assert_int_equal(near.shared->code[k], 750000);
    }
    ranks_release(&far);
    ranks_release(&near);
}

/* Each block crosses each link between nodes once. */
static void gather_much(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    size_t size = 1000003;
    char *data = calloc(1, size), *all = malloc(size * (size_t)r->world);
    struct coll_stats before, after;
    struct err e = {0};

    coll_get_stats(g, &before);
    RANK_OK(coll_allgather(g, data, size, all, &e), &e);
    coll_get_stats(g, &after);
    r->shared->code[rank] = (int)(after.bytes - before.bytes);
    free(data);
    free(all);
    coll_close(g);
}

static void a_gather_sends_no_byte_twice(void **state)
{
    struct ranks r = {.world = 4, .node_of = {0, 1, 2, 3}};

    (void)state;
    assert_true(ranks_run(&r, gather_much));
    for (int k = 0; k < 4; k++)
        assert_in_range(r.shared->code[k], 3 * 1000003, 3 * 1000003 + 100);
    ranks_release(&r);
}

static void ranks_without_a_directory_connect_by_tcp(void **state)
{
    struct ranks r = {.world = 3, .no_directory = true};

    (void)state;
    assert_true(ranks_run(&r, pass_everything));
    ranks_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcast_and_allgather_bring_every_byte),
        cmocka_unit_test(a_gather_sends_no_byte_twice),
        cmocka_unit_test(an_exchange_brings_each_rank_its_part_of_all),
        cmocka_unit_test(many_ranks_exchange),
        cmocka_unit_test(an_exchange_sends_each_part_once),
        cmocka_unit_test(ranks_without_a_directory_connect_by_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
