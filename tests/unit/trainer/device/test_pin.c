/* Which cores ranks get on machines of several kinds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/device/cpu/pin.h"

/* Nodes of `cores` cores each, numbered one after the other; the second hardware threads come after all cores. */
struct machine {
    int nodes, cores;
    bool hyper_threads;
};

/* The processors of `allowed` that the machine has, as topology_read would list them. */
static void machine_make(struct topology *t, const struct machine *m, const char *allowed)
{
    const int all = m->nodes * m->cores;
    struct topology_set set = {{0}};
    topology_parse(allowed, &set);
    *t = (struct topology){.cpus = xcalloc(2 * (size_t)all, sizeof(*t->cpus))};
    for (int core = 0; core < all; core++) {
        int first = -1;
        for (int cpu = core; cpu < all * (m->hyper_threads ? 2 : 1); cpu += all) {
            if (!CPU_ISSET_S((size_t)cpu, sizeof(set), topology_cpus(&set)))
                continue;
            first = first < 0 ? cpu : first;
            t->cpus[t->count++] = (struct topology_cpu){.cpu = cpu, .core = first, .node = core / m->cores};
        }
    }
}

/* expected, of each rank: "processors@nodes", and at the end the number of threads: "0-7@0 8-15@1 x8" */
static void expect(struct machine m, const char *allowed, int ranks, int wanted, const char *expected)
{
    CLEANUP(buf_release) struct buf found = {0};
    struct topology t;
    int threads = 0;
    machine_make(&t, &m, allowed);
    for (int r = 0; r < ranks; r++) {
        struct cpu_share s;
        cpu_share_choose(&s, &t, r, ranks, wanted);
        topology_print(s.cpus, s.count, &found);
        buf_puts(&found, "@");
        topology_print(s.nodes, s.node_count, &found);
        buf_puts(&found, " ");
        assert_true(r == 0 || s.threads == threads); /* ranks wait for each other at each step */
        threads = s.threads;
        cpu_share_release(&s);
    }
    buf_printf(&found, "x%d", threads);
    assert_string_equal(found.data, expected);
    topology_release(&t);
}

static const struct machine two_sockets = {2, 16, true}, laptop = {1, 8, false}, four_nodes = {4, 4, false};

static void one_rank_for_each_node_first(void **state)
{
    (void)state;
    expect(two_sockets, "0-63", 2, 0, "0-15@0 16-31@1 x16");
    expect(two_sockets, "0-63", 4, 0, "0-7@0 8-15@0 16-23@1 24-31@1 x8");
    expect(two_sockets, "0-63", 3, 0, "0-7@0 8-15@0 16-31@1 x8");
    expect(two_sockets, "0-63", 5, 0, "0-4@0 5-9@0 10-14@0 16-23@1 24-31@1 x5");
    expect(four_nodes, "0-15", 3, 0, "0-3@0 4-7@1 8-11@2 x4");
    expect(four_nodes, "0-15", 4, 0, "0-3@0 4-7@1 8-11@2 12-15@3 x4");
}

/* Half of the machine would be idle if a rank had one node only. */
static void fewer_ranks_than_nodes_get_several(void **state)
{
    (void)state;
    expect(two_sockets, "0-63", 1, 0, "0-63@0-1 x32"); /* other jobs may use the second threads */
    expect(four_nodes, "0-15", 1, 0, "0-15@0-3 x16");
    expect(four_nodes, "0-15", 2, 0, "0-7@0-1 8-15@2-3 x8");
}

/* All ranks get the same number of cores: rank 0 those with the lowest numbers, rank 1 the next ones, and so on. */
static void one_node_is_divided_equally(void **state)
{
    (void)state;
    expect(laptop, "0-7", 1, 0, "0-7@0 x8");
    expect(laptop, "0-7", 2, 0, "0-3@0 4-7@0 x4");
    expect(laptop, "0-7", 3, 0, "0-1@0 2-3@0 4-5@0 x2");
    expect(laptop, "0-7", 8, 0, "0@0 1@0 2@0 3@0 4@0 5@0 6@0 7@0 x1");
    expect(laptop, "2,5", 2, 0, "2@0 5@0 x1");
}

/* A container that has a part of the second socket: two ranks on the first one are faster than one of four cores. */
static void a_cut_socket_gets_fewer_ranks(void **state)
{
    (void)state;
    expect(two_sockets, "0-19", 2, 0, "0-7@0 8-15@0 x8");
    expect(two_sockets, "0-23", 2, 0, "0-15@0 16-23@1 x8");
    expect(two_sockets, "0-23", 3, 0, "0-7@0 8-15@0 16-23@1 x8");
    expect(two_sockets, "4-7,36-39", 2, 0, "4-5@0 6-7@0 x2");
    expect(two_sockets, "40-47", 1, 0, "40-47@0 x8"); /* second threads, whose first ones are not allowed */
}

static void second_threads_only_if_they_are_asked_for(void **state)
{
    (void)state;
    expect(two_sockets, "0-63", 2, 8, "0-15@0 16-31@1 x16");
    expect(two_sockets, "0-63", 2, 17, "0-15,32-47@0 16-31,48-63@1 x16");
    expect(two_sockets, "0-40", 4, 9, "0-7,32-39@0 8-15,40@0 16-23@1 24-31@1 x8");
    expect(laptop, "0-7", 2, 9, "0-3@0 4-7@0 x4");
}

static void more_ranks_than_cores(void **state)
{
    static const struct machine small = {2, 2, true};
    (void)state;
    expect(small, "0-7", 5, 0, "0@0 1@0 4@0 2@1 3@1 x1");
    expect(small, "0-7", 8, 0, "0@0 1@0 4@0 5@0 2@1 3@1 6@1 7@1 x1");
    expect(small, "0-7", 10, 0, "0@0 1@0 4@0 5@0 2@1 3@1 6@1 7@1 0@0 1@0 x1");
    expect(laptop, "3", 2, 0, "3@0 3@0 x1");
    expect(laptop, "0-1", 3, 4, "0@0 1@0 0@0 x1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_for_each_node_first),
        cmocka_unit_test(fewer_ranks_than_nodes_get_several),
        cmocka_unit_test(one_node_is_divided_equally),
        cmocka_unit_test(a_cut_socket_gets_fewer_ranks),
        cmocka_unit_test(second_threads_only_if_they_are_asked_for),
        cmocka_unit_test(more_ranks_than_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
