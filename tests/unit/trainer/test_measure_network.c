/* Which nodes make all-reduces with each other in which round of `train.measure`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_meets_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
