/* Tests sums and barriers on shared memory, on the ring and on both together, at odd sizes, against a plain sum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/member/coll/layouts.h"
#include "trainer/member/coll/group.h"

/* Reproducible values of both signs and several magnitudes, so that another order of additions changes the
 * bits. */
static float value_of(int rank, size_t i)
{
    uint64_t x = (uint64_t)i * 2654435761u + (uint64_t)rank * 40503u + 12345;

    x ^= x >> 13;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return (float)((double)(int64_t)(x & 0xffffff) - 8388608.0) * ldexpf(1.0f, -(int)(x >> 60));
}

static const size_t counts[] = {0, 1, 7, 1024, 1025, 16411, (1u << 20) + 3};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* Checks every element of small arrays and every 31st element of large ones; 31 has no common factor with
 * lines and chunks. */
static void check_sum(const struct ranks *r, const float *data, size_t count, bool exact)
{
    for (size_t i = 0; i<count; i += count> 20000 ? 31 : 1) {
        double sum = 0, size = 0;
        float plain = value_of(0, i);

        for (int k = 0; k < r->world; k++) {
            sum += (double)value_of(k, i);
            size += fabs((double)value_of(k, i));
        }
        for (int k = 1; k < r->world; k++)
            plain += value_of(k, i);
        RANK_CHECK(fabs((double)data[i] - sum) <= size * 1e-6);
        RANK_CHECK(!exact || data[i] == plain);
    }
}

static bool one_node(const struct ranks *r)
{
    for (int i = 1; i < r->world; i++)
        if (r->node_of[i] != r->node_of[0])
            return false;
    return true;
}

/* Sums two arrays, the second one from an odd offset. */
static void sum_everything(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    float *first, *second;
    struct err e = {0};
    uint64_t hash = 0;

    RANK_OK(coll_alloc(g, counts[COUNTS - 1], &first, &e), &e);
    RANK_OK(coll_alloc(g, counts[COUNTS - 1] + 64, &second, &e), &e);
    RANK_CHECK(((uintptr_t)first & 63) == 0 && first[counts[COUNTS - 1] - 1] == 0);
    for (size_t c = 0; c < 2 * COUNTS; c++) {
        size_t count = counts[c / 2];
        float *data = c % 2 ? second + 3 + c : first;

        for (size_t i = 0; i < count; i++)
            data[i] = value_of(rank, i);
        RANK_OK(coll_allreduce(g, data, count, &e), &e);
        check_sum(r, data, count, one_node(r));
        hash = hash * 31 + ranks_hash(data, count * sizeof(float));
    }
    r->shared->hash[rank] = hash;
    coll_close(g);
}

static void sums_agree_with_a_plain_sum_in_the_same_bits_everywhere_and_every_time(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        uint64_t hash[2];

        for (int run = 0; run < 2; run++) {
            struct ranks r;

            with_layout(&r, &layouts[l]);
            if (!ranks_run(&r, sum_everything))
                fail_msg("layout %s", layouts[l].name);
            for (int i = 1; i < r.world; i++)
                assert_int_equal(r.shared->hash[i], r.shared->hash[0]);
            hash[run] = r.shared->hash[0];
            ranks_release(&r);
        }
        assert_int_equal(hash[0], hash[1]);
    }
}

static int nodes_of(const struct ranks *r)
{
    int nodes = 0;

    for (int i = 0; i < r->world; i++) {
        int k = 0;

        while (k < i && r->node_of[k] != r->node_of[i])
            k++;
        nodes += k == i;
    }
    return nodes;
}

/* Over a ring of nodes with a rank each, chunk c is added up from node c on, whether it is taken in blocks or not. */
static void check_ring_sum(const struct ranks *r, const float *data, size_t count)
{
    const size_t world = (size_t)r->world, extra = count % world;

    for (size_t c = 0, i = 0; c < world; c++)
        for (size_t end = i + count / world + (c < extra); i < end; i++) {
            float sum = value_of((int)c, i);

            for (size_t k = 1; k < world; k++)
                sum += value_of((int)((c + k) % world), i);
            RANK_CHECK(data[i] == sum);
        }
}

/* As floats against a plain sum; as bf16, blocks against none. */
static void sum_in_blocks(struct ranks *r, int rank)
{
    const size_t count = (size_t)r->world * 200003 + 1; /* a chunk has several blocks and a short last one */
    float *halves = malloc(count * sizeof(*halves)), *data;
    struct coll_config config;
    struct coll_group *g;
    struct err e = {0};

    ranks_config(r, rank, &config);
    config.bf16 = true;
    RANK_OK(coll_open(&g, r->listeners[rank], &config, &e), &e);
    RANK_OK(coll_alloc(g, count, &data, &e), &e);
    for (int wide = 0; wide < 2; wide++) {
        g->ring_short = !wide;
        for (size_t i = 0; i < count; i++)
            data[i] = value_of(rank, i);
        RANK_OK(coll_allreduce(g, data, count, &e), &e);
        check_ring_sum(r, data, count);
        for (size_t i = 0; i < count; i++)
            data[i] = value_of(rank, i);
        RANK_OK(coll_start_bf16(g, data, count, &e), &e);
        RANK_OK(coll_join(g, &e), &e);
        RANK_CHECK(!wide || !memcmp(data, halves, count * sizeof(*data)));
        memcpy(halves, data, count * sizeof(*data));
    }
    coll_close(g);
    free(halves);
}

static void rings_add_up_in_the_order_of_the_chunk_with_and_without_blocks(void **state)
{
    (void)state;
    for (int world = 2; world <= 4; world++) {
        struct ranks r = {.world = world, .node_of = {0, 1, 2, 3}};

        assert_true(ranks_run(&r, sum_in_blocks));
        ranks_release(&r);
    }
}

static void sum_in_two_orders(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    const size_t count = 400001;
    float *data;
    struct err e = {0};

    RANK_OK(coll_alloc(g, count, &data, &e), &e);
    g->ring_short = rank == 0;
    RANK_CHECK(coll_allreduce(g, data, count, &e) != ERR_OK);
    coll_close(g);
}

static void a_rank_that_takes_blocks_alone_gets_an_error_and_no_wrong_sum(void **state)
{
    struct ranks r = {.world = 2, .node_of = {0, 1}};

    (void)state;
    assert_true(ranks_run(&r, sum_in_two_orders));
    ranks_release(&r);
}

static float bf16_of(float x)
{
    double unit = x == 0.0f ? 1.0 : ldexp(1.0, ilogbf(x) - 7);

    return (float)(nearbyint((double)x / unit) * unit);
}

/* As bf16: a value is rounded, then the sum over each node, then the sum at each hop. */
static double half_error(const struct ranks *r)
{
    return ldexp(1.01 * (1 + nodes_of(r)), -8);
}

/* On one node bit for bit: floats are added up in the order of ranks, and rounded once. */
static void check_half_sum(const struct ranks *r, const float *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double sum = 0, size = 0;
        float plain = bf16_of(value_of(0, i));

        for (int k = 0; k < r->world; k++) {
            sum += (double)value_of(k, i);
            size += fabs((double)value_of(k, i));
        }
        for (int k = 1; k < r->world; k++)
            plain += bf16_of(value_of(k, i));
        RANK_CHECK(fabs((double)data[i] - sum) <= size * half_error(r));
        RANK_CHECK(data[i] == bf16_of(data[i]));
        RANK_CHECK(!one_node(r) || data[i] == bf16_of(plain));
    }
}

static void sum_as_bf16(struct ranks *r, int rank)
{
    struct coll_config config;
    struct coll_group *g;
    float *array;
    struct err e = {0};
    uint32_t nan = 0x7fffffff; /* rounding it as a number would give -0 */

    ranks_config(r, rank, &config);
    config.bf16 = true;
    RANK_OK(coll_open(&g, r->listeners[rank], &config, &e), &e);
    RANK_OK(coll_alloc(g, counts[COUNTS - 2] + 64, &array, &e), &e);
    for (size_t c = 0; c < COUNTS - 1 && r->world > 1; c++) {
        float *data = array + 5 * c;

        for (size_t i = 0; i < counts[c]; i++)
            data[i] = value_of(rank, i);
        RANK_OK(coll_start_bf16(g, data, counts[c], &e), &e);
        RANK_OK(coll_join(g, &e), &e);
        check_half_sum(r, data, counts[c]);
        r->shared->hash[rank] = r->shared->hash[rank] * 31 + ranks_hash(data, counts[c] * sizeof(float));
    }
    array[0] = 1.0f;
    if (rank == 0)
        memcpy(array, &nan, sizeof(nan));
    array[1] = rank == r->world - 1 ? INFINITY : 2.0f;
    array[2] = 3.4e38f; /* infinity as bf16 */
    RANK_OK(coll_start_bf16(g, array, 3, &e), &e);
    RANK_OK(coll_join(g, &e), &e);
    RANK_CHECK(isnan(array[0]) && isinf(array[1]) && (r->world == 1 || isinf(array[2])));
    coll_close(g);
}

static void sums_as_bf16_are_rounded_as_promised_and_repeat(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        uint64_t hash[2];

        for (int run = 0; run < 2; run++) {
            struct ranks r;

            with_layout(&r, &layouts[l]);
            if (!ranks_run(&r, sum_as_bf16))
                fail_msg("layout %s", layouts[l].name);
            for (int i = 1; i < r.world; i++)
                assert_int_equal(r.shared->hash[i], r.shared->hash[0]);
            hash[run] = r.shared->hash[0];
            ranks_release(&r);
        }
        assert_int_equal(hash[0], hash[1]);
    }
}

/* A second implementation of the tree's sum: pairs of pairs, from left to right. */
static float tree_of(const struct ranks *r, int first, int count, size_t i)
{
    int half = 1;

    if (count == 1)
        return value_of(first, i);
    while (2 * half < count)
        half *= 2;
    return tree_of(r, first, half, i) + tree_of(r, first + half, count - half, i);
}

static void sum_as_a_tree(struct ranks *r, int rank)
{
    struct coll_config config;
    struct coll_group *g;
    float *array;
    struct err e = {0};

    ranks_config(r, rank, &config);
    config.tree = true;
    RANK_OK(coll_open(&g, r->listeners[rank], &config, &e), &e);
    RANK_OK(coll_alloc(g, counts[COUNTS - 1] + 64, &array, &e), &e);
    for (size_t c = 0; c < COUNTS; c++) {
        size_t count = counts[c];
        float *data = array + 5 * c;

        for (size_t i = 0; i < count; i++)
            data[i] = value_of(rank, i);
        RANK_OK(coll_allreduce(g, data, count, &e), &e);
        for (size_t i = 0; i<count; i += count> 20000 ? 31 : 1)
            RANK_CHECK(data[i] == tree_of(r, 0, r->world, i));
    }
    coll_close(g);
}

/* The tree covers the ranks, whatever nodes they are on. */
static void tree_sums_do_not_depend_on_the_layout(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r;

        with_layout(&r, &layouts[l]);
        if (!ranks_run(&r, sum_as_a_tree))
            fail_msg("layout %s", layouts[l].name);
        ranks_release(&r);
    }
}

/* Parts in floats: equal ones, where they can be; unlike ones, of which some are empty; all of it to one rank. */
enum { EQUAL_PARTS, UNLIKE_PARTS, ONE_PART, PART_KINDS };

static void cut_floats(int kind, size_t count, int world, size_t *offsets)
{
    offsets[0] = 0;
    for (int k = 1; k < world; k++) {
        size_t n = (size_t)k, all = (size_t)world;

        if (kind == EQUAL_PARTS)
            offsets[k] = count * n / all;
        else if (kind == UNLIKE_PARTS)
            offsets[k] = n / 2 * n * count / (all * all);
        else
            offsets[k] = k > world / 2 ? count : 0;
    }
    offsets[world] = count;
}

struct part_check {
    struct ranks *r;
    bool half;    /* as bf16 */
    double error; /* the largest difference, as a multiple of the sum of all magnitudes */
    struct coll_group *g;
    int rank;
    float *sums, *data; /* attached */
};

/* Gathers the middle of each part, which leaves gaps. */
static void check_ranges(const struct part_check *p, int kind, size_t count)
{
    const int world = p->r->world;
    size_t offsets[9], from[8], to[8];
    struct err e = {0};

    cut_floats(kind, count, world, offsets);
    for (size_t i = 0; i < count; i++)
        p->data[i] = (float)p->rank - 0.5f;
    for (int r = 0; r < world; r++) {
        const size_t size = offsets[r + 1] - offsets[r];

        from[r] = offsets[r] + size / 3;
        to[r] = offsets[r] + (r % 3 == 1 ? size / 3 : size - size / 4); /* some parts are empty */
        for (size_t i = from[r]; r == p->rank && i < to[r]; i++)
            p->data[i] = p->sums[i];
    }
    RANK_OK(coll_gather_ranges(p->g, p->data, from, to, &e), &e);
    RANK_OK(coll_join(p->g, &e), &e);
    for (int r = 0; r < world; r++)
        for (size_t i = offsets[r]; i < offsets[r + 1]; i++)
            RANK_CHECK(p->data[i] == (i >= from[r] && i < to[r] ? p->sums[i] : (float)p->rank - 0.5f));
}

/* sums: has the all-reduce of the same data. */
static void check_parts(const struct part_check *p, int kind, size_t count, bool same_bits)
{
    const int world = p->r->world;
    size_t offsets[9], lo, hi;
    struct err e = {0};

    cut_floats(kind, count, world, offsets);
    lo = offsets[p->rank];
    hi = offsets[p->rank + 1];
    for (size_t i = 0; i < count; i++)
        p->data[i] = value_of(p->rank, i);
    RANK_OK((p->half ? coll_reduce_scatter_bf16 : coll_reduce_scatter)(p->g, p->data, offsets, &e), &e);
    RANK_OK(coll_join(p->g, &e), &e);
    for (size_t i = lo; i < hi; i++) {
        double size = 0;

        for (int k = 0; k < world; k++)
            size += fabs((double)value_of(k, i));
        RANK_CHECK(same_bits ? p->data[i] == p->sums[i]
                             : fabs((double)(p->data[i] - p->sums[i])) <= size * p->error);
    }
    for (size_t i = 0; i < count; i++)
        p->data[i] = i < lo || i >= hi ? -1.0f : p->sums[i];
    RANK_OK(coll_gather(p->g, p->data, offsets, &e), &e);
    RANK_OK(coll_join(p->g, &e), &e);
    RANK_CHECK(count == 0 || !memcmp(p->data, p->sums, count * sizeof(float)));
}

enum { IN_ORDER, BY_TREE, AS_BF16, SUM_KINDS };

/* r->arg: the kind of the sum. */
static void scatter_and_gather(struct ranks *r, int rank)
{
    static const size_t few[] = {0, 1, 7, 1025, 16411, 65539};
    const size_t most = few[sizeof(few) / sizeof(few[0]) - 1];
    const int sum = *(const int *)r->arg;
    struct part_check p = {
        .r = r, .rank = rank, .half = sum == AS_BF16, .error = sum == AS_BF16 ? 2 * half_error(r) : 1e-6};
    struct coll_config config;
    float *first, *second;
    struct err e = {0};

    ranks_config(r, rank, &config);
    config.tree = sum == BY_TREE;
    config.bf16 = p.half;
    RANK_OK(coll_open(&p.g, r->listeners[rank], &config, &e), &e);
    RANK_OK(coll_alloc(p.g, most + 64, &first, &e), &e);
    RANK_OK(coll_alloc(p.g, most + 64, &second, &e), &e);
    for (size_t c = 0; c < sizeof(few) / sizeof(few[0]) - p.half; c++)
        for (int kind = 0; kind < PART_KINDS; kind++) {
            p.sums = first + 5 * c;
            p.data = second + 3 * c + (size_t)kind;
            for (size_t i = 0; i < few[c]; i++)
                p.sums[i] = value_of(rank, i);
            RANK_OK((p.half ? coll_start_bf16 : coll_start)(p.g, p.sums, few[c], &e), &e);
            RANK_OK(coll_join(p.g, &e), &e);
            check_parts(&p, kind, few[c], config.tree || nodes_of(r) <= 2);
            r->shared->hash[rank] = r->shared->hash[rank] * 31 + ranks_hash(p.data, few[c] * sizeof(float));
            check_ranges(&p, kind, few[c]);
        }
    coll_close(p.g);
}

static void parts_of_a_sum_are_those_of_the_all_reduce(void **state)
{
    (void)state;
    for (size_t l = 0; l < SUM_KINDS * LAYOUTS; l++) {
        const int sum = (int)(l % SUM_KINDS);
        struct ranks r;

        with_layout(&r, &layouts[l / SUM_KINDS]);
        r.arg = &sum;
        if (!ranks_run(&r, scatter_and_gather))
            fail_msg("layout %s, kind of sum %d", layouts[l / SUM_KINDS].name, sum);
        for (int i = 1; i < r.world; i++)
            assert_int_equal(r.shared->hash[i], r.shared->hash[0]);
        ranks_release(&r);
    }
}

/* r->arg: the part that rank 0 names differently. */
static void disagree_about_parts(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    size_t offsets[] = {0, 500, 1000, 1500};
    float *data;
    struct err e = {0};
    enum err_code code;

    RANK_OK(coll_alloc(g, 1500, &data, &e), &e);
    if (rank == 0)
        offsets[1] = 501;
    code = coll_reduce_scatter(g, data, offsets, &e);
    RANK_CHECK(code == ERR_FAILED_PRECONDITION || code == ERR_ABORTED);
    coll_close(g);
}

static void different_parts_are_an_error(void **state)
{
    struct ranks near = {.world = 3}, far = {.world = 3, .node_of = {0, 1, 2}};

    (void)state;
    assert_true(ranks_run(&near, disagree_about_parts));
    assert_true(ranks_run(&far, disagree_about_parts));
    ranks_release(&near);
    ranks_release(&far);
}

enum { MUCH = 240000 };

/* r->arg: not NULL: as bf16. */

static void sum_much_by_parts(struct ranks *r, int rank)
{
    struct coll_config config;
    struct coll_group *g;
    size_t offsets[9];
    float *data;
    struct coll_stats stats[4];
    struct err e = {0};

    ranks_config(r, rank, &config);
    config.bf16 = r->arg;
    RANK_OK(coll_open(&g, r->listeners[rank], &config, &e), &e);
    RANK_OK(coll_alloc(g, MUCH, &data, &e), &e);
    cut_floats(EQUAL_PARTS, MUCH, r->world, offsets);
    coll_get_stats(g, &stats[0]);
    RANK_OK((r->arg ? coll_reduce_scatter_bf16 : coll_reduce_scatter)(g, data, offsets, &e), &e);
    coll_get_stats(g, &stats[1]);
    RANK_OK(coll_gather(g, data, offsets, &e), &e);
    coll_get_stats(g, &stats[2]);
    RANK_OK((r->arg ? coll_start_bf16 : coll_start)(g, data, MUCH, &e), &e);
    coll_get_stats(g, &stats[3]);
    r->shared->code[rank] = (int)(stats[1].bytes - stats[0].bytes);
    r->shared->hash[rank] = stats[2].bytes - stats[1].bytes;
    r->shared->hash[rank] |= (stats[3].bytes - stats[2].bytes) << 32;
    coll_close(g);
}

/* Each half costs (n - 1) / n of the data on each rank, half of an all-reduce; sums as bf16 half of that. On one node an all-reduce
 * reads as much as its first half. */
static void each_half_of_a_sum_moves_the_data_once(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks += ranks == 4 ? 4 : 1)
        for (int kind = 0; kind < 4; kind++) {
            const bool far = kind % 2, half = kind / 2;
            struct ranks r = {.world = ranks, .arg = half ? &half : NULL};
            const int want = MUCH * 4 / ranks * (ranks - 1), sum = half ? want / 2 : want;

            for (int k = 0; k < ranks; k++)
                r.node_of[k] = far ? k : 0;
            assert_true(ranks_run(&r, sum_much_by_parts));
            for (int k = 0; k < ranks; k++) {
                assert_in_range(r.shared->code[k], sum, sum + (far ? 100 : 0));
                assert_in_range(r.shared->hash[k] >> 32, sum * (far ? 2 : 1),
                                sum * (far ? 2 : 1) + (far ? 100 : 0));
                assert_in_range(r.shared->hash[k] & 0xffffffff, want, want + (far ? 100 : 0));
            }
            ranks_release(&r);
        }
}

/* No rank leaves barrier k before all ranks have entered it. */
static void count_barriers(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct coll_stats stats;
    struct err e = {0};

    for (int k = 1; k <= 200; k++) {
        atomic_fetch_add(&r->shared->counter, 1);
        RANK_OK(coll_barrier(g, &e), &e);
        RANK_CHECK(atomic_load(&r->shared->counter) >= k * r->world);
    }
    coll_get_stats(g, &stats);
    RANK_CHECK(stats.calls == 200);
    coll_close(g);
}

static void a_barrier_holds_until_all_are_there(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r;

        with_layout(&r, &layouts[l]);
        if (!ranks_run(&r, count_barriers))
            fail_msg("layout %s", layouts[l].name);
        ranks_release(&r);
    }
}

static void rings_go_over_ipv6_too(void **state)
{
    struct ranks r = {.world = 3, .node_of = {0, 1, 2}, .host = "::1"};

    (void)state;
    assert_true(ranks_run(&r, sum_everything));
    ranks_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_sums_do_not_depend_on_the_layout),
        cmocka_unit_test(sums_as_bf16_are_rounded_as_promised_and_repeat),
        cmocka_unit_test(sums_agree_with_a_plain_sum_in_the_same_bits_everywhere_and_every_time),
        cmocka_unit_test(parts_of_a_sum_are_those_of_the_all_reduce),
        cmocka_unit_test(different_parts_are_an_error),
        cmocka_unit_test(each_half_of_a_sum_moves_the_data_once),
        cmocka_unit_test(a_barrier_holds_until_all_are_there),
        cmocka_unit_test(rings_add_up_in_the_order_of_the_chunk_with_and_without_blocks),
        cmocka_unit_test(a_rank_that_takes_blocks_alone_gets_an_error_and_no_wrong_sum),
        cmocka_unit_test(rings_go_over_ipv6_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
