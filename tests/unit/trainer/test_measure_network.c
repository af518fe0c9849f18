/* Which nodes make all-reduces with each other in which round of `train.measure`, and how a pair of them measures or fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "tests/unit/base/check.h"
#include "tests/unit/trainer/member/ranks.h"
#include "trainer/measure_network.h"

#define NODES_MOST 33

static void each_pair_meets_once(void **state)
{
    (void)state;
    assert_int_equal(network_rounds(1), 0);
    for (int nodes = 2; nodes <= NODES_MOST; nodes++) {
        int met[NODES_MOST][NODES_MOST] = {{0}};
        for (int round = 0; round < network_rounds(nodes); round++) {
            int alone = 0;
            for (int node = 0; node < nodes; node++) {
                const int other = network_partner(node, nodes, round);
                alone += other < 0;
                if (other < 0)
                    continue;
                assert_in_range(other, 0, nodes - 1);
                assert_int_not_equal(other, node);
                assert_int_equal(network_partner(other, nodes, round), node);
                met[node][other]++;
            }
            assert_int_equal(alone, nodes % 2);
        }
        for (int a = 0; a < nodes; a++)
            for (int b = 0; b < nodes; b++)
                assert_int_equal(met[a][b], a != b);
    }
}

static void calls_out_of_range_are_an_error(void **state)
{
    struct err e;
    (void)state;
    assert_int_equal(node_pair_check_calls(1, 1, &e), ERR_OK);
    assert_int_equal(node_pair_check_calls(0, 0, &e), ERR_OK);
    assert_int_equal(node_pair_check_calls(0, 1, &e), ERR_INTERNAL);
    assert_int_equal(node_pair_check_calls(-1, 0, &e), ERR_INTERNAL);
    assert_int_equal(node_pair_check_calls(NODE_PAIR_CALLS_MOST + 1, 1, &e), ERR_INTERNAL);
}

static void partners_out_of_range_are_an_error(void **state)
{
    static struct network_partners all[2];
    struct err e;
    (void)state;
    all[1].count = NETWORK_PARTNERS;
    memset(all[1].list[3].why, 'x', sizeof(all[1].list[3].why));
    assert_int_equal(network_check_partners(all, 2, &e), ERR_OK);
    assert_int_equal(strlen(all[1].list[3].why), sizeof(all[1].list[3].why) - 1);
    all[1].count = NETWORK_PARTNERS + 1;
    assert_int_equal(network_check_partners(all, 2, &e), ERR_INTERNAL);
    all[1].count = -1;
    assert_int_equal(network_check_partners(all, 2, &e), ERR_INTERNAL);
}

static void pair_config(const struct ranks *r, int rank, struct node_pair_config *out)
{
    *out = (struct node_pair_config){
        .listener = r->listeners[rank], .time_ns = 50000000, .limit_ms = 100000, .slower = 1.0};
    ranks_config(r, rank, &out->group);
}

static void measure_pair(struct ranks *r, int rank)
{
    struct node_pair_config config;
    struct pair_rate rate = {0};
    struct err e = {0};
    pair_config(r, rank, &config);
    RANK_OK(node_pair_measure(&config, &rate, &e), &e);
    RANK_CHECK(rate.median > 0.0 && rate.best >= rate.median);
}

static void a_pair_measures_its_rate(void **state)
{
    struct ranks r = {.world = 2, .node_of = {0, 1}};
    (void)state;
    assert_true(ranks_run(&r, measure_pair));
    ranks_release(&r);
}

/* The other rank connects and then answers no more, as a machine that has lost its power. */
static void partner_is_silent(struct ranks *r, int rank)
{
    struct node_pair_config config;
    struct pair_rate rate;
    struct err e = {0};
    pair_config(r, rank, &config);
    if (rank == 1) {
        struct coll_group *g;
        RANK_OK(coll_open(&g, config.listener, &config.group, &e), &e);
        while (!atomic_load(&r->shared->flag))
            usleep(1000);
        coll_close(g);
        return;
    }
    config.limit_ms = 1500 * test_slow();
    RANK_CHECK(node_pair_measure(&config, &rate, &e) == ERR_DEADLINE_EXCEEDED);
    atomic_store(&r->shared->flag, 1);
}

static void a_silent_partner_costs_the_limit_alone(void **state)
{
    struct ranks r = {.world = 2, .node_of = {0, 1}};
    (void)state;
    assert_true(ranks_run(&r, partner_is_silent));
    ranks_release(&r);
}

struct over {
    struct ranks *r;
    struct coll_listener *listener;
    int64_t generation;
};

static void *end_generation(void *arg)
{
    const struct over *o = arg;
    while (!atomic_load(&o->r->shared->counter))
        usleep(1000);
    coll_listener_abort(o->listener, o->generation);
    return NULL;
}

/* Rank 0 measures with rank 1, which is silent, while its own generation, a group of one, ends. */
static void generation_ends(struct ranks *r, int rank)
{
    struct node_pair_config config;
    struct pair_rate rate;
    struct err e = {0};
    pair_config(r, rank, &config);
    if (rank == 1) {
        struct coll_group *g;
        RANK_OK(coll_open(&g, config.listener, &config.group, &e), &e);
        atomic_store(&r->shared->counter, 1);
        while (!atomic_load(&r->shared->flag))
            usleep(1000);
        coll_close(g);
        return;
    }
    struct coll_config alone;
    struct coll_listener *l;
    struct coll_group *generation;
    ranks_config(r, rank, &alone);
    alone.world_size = 1;
    RANK_OK(coll_listen(&l, NULL, NULL, &e), &e);
    RANK_OK(coll_open(&generation, l, &alone, &e), &e);
    config.generation = generation;
    struct over over = {r, l, alone.generation};
    pthread_t thread;
    RANK_CHECK(pthread_create(&thread, NULL, end_generation, &over) == 0);
    RANK_CHECK(node_pair_measure(&config, &rate, &e) == ERR_ABORTED);
    atomic_store(&r->shared->flag, 1);
    pthread_join(thread, NULL);
    coll_close(generation);
    coll_listener_free(l);
}

static void the_end_of_the_generation_ends_a_pair(void **state)
{
    struct ranks r = {.world = 2, .node_of = {0, 1}};
    (void)state;
    assert_true(ranks_run(&r, generation_ends));
    ranks_release(&r);
}

static void an_abort_reaches_a_group_without_its_device(void **state)
{
    const struct coll_peer alone = {0};
    struct coll_config config = {.generation = 3, .world_size = 1, .peers = &alone};
    struct coll_listener *l;
    struct coll_group *g;
    struct err e;
    (void)state;
    assert_int_equal(coll_listen(&l, NULL, NULL, &e), ERR_OK);
    assert_int_equal(coll_open(&g, l, &config, &e), ERR_OK);
    assert_int_equal(coll_leave_device(g, &e), ERR_OK);
    assert_int_equal(coll_barrier(g, &e), ERR_OK);
    coll_listener_abort(l, 3);
    assert_int_equal(coll_barrier(g, &e), ERR_ABORTED);
    coll_close(g);
    coll_listener_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_meets_once),
        cmocka_unit_test(calls_out_of_range_are_an_error),
        cmocka_unit_test(partners_out_of_range_are_an_error),
        cmocka_unit_test(a_pair_measures_its_rate),
        cmocka_unit_test(a_silent_partner_costs_the_limit_alone),
        cmocka_unit_test(an_abort_reaches_a_group_without_its_device),
        cmocka_unit_test(the_end_of_the_generation_ends_a_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
