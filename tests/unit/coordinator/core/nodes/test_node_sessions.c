#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/coordinator/core/nodes/node_sessions.h"

#define NODES 97

/* Each node gets the sessions i + 1, then 1000 - i: these come in both orders. */
static void a_node_is_found_by_its_newest_session(void **state)
{
    struct core core = {0};
    struct node nodes[NODES] = {0};

    (void)state;
    assert_null(node_sessions_find(&core, 0));
    for (size_t i = 0; i < NODES; i++)
        node_sessions_set(&core, &nodes[i * 31 % NODES], i * 31 % NODES + 1);
    for (size_t i = 0; i < NODES; i++)
        assert_ptr_equal(node_sessions_find(&core, i + 1), &nodes[i]);
    assert_null(node_sessions_find(&core, NODES + 1));
    for (size_t i = 0; i < NODES; i++)
        node_sessions_set(&core, &nodes[i], 1000 - i);
    for (size_t i = 0; i < NODES; i++) {
        assert_null(node_sessions_find(&core, i + 1));
        assert_ptr_equal(node_sessions_find(&core, 1000 - i), &nodes[i]);
    }
    assert_int_equal(core.session_count, NODES);
    free(core.sessions);
}

static void a_node_without_a_session_is_not_found(void **state)
{
    struct core core = {0};
    struct node nodes[3] = {0};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        node_sessions_set(&core, &nodes[i], i + 5);
    node_sessions_set(&core, &nodes[1], 0);
    assert_int_equal(nodes[1].session, 0);
    assert_null(node_sessions_find(&core, 6));
    assert_null(node_sessions_find(&core, 0));
    assert_ptr_equal(node_sessions_find(&core, 5), &nodes[0]);
    assert_ptr_equal(node_sessions_find(&core, 7), &nodes[2]);
    free(core.sessions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_is_found_by_its_newest_session),
        cmocka_unit_test(a_node_without_a_session_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
