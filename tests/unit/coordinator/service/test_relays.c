/* What the coordinator keeps of the relays of agents that are not connected. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/relays.h"
#include "daemon/coordinator/service/service_state.h"

static const struct node_record *known;
const struct node_record *__wrap_core_node(const struct core *core, const char *name);

const struct node_record *__wrap_core_node(const struct core *core, const char *name)
{
    (void)core, (void)name;
    return known;
}

static void session_ends(struct service *s, const char *node, const char *address)
{
    struct agent_session x = {.service = s, .node = xstrdup(node), .welcomed = true};

    x.relay.address = address ? xstrdup(address) : NULL;
    relays_agent_left(&x);
    free(x.node);
}

static void a_node_that_is_not_awaited_leaves_no_relay(void **state)
{
    const struct node_record lost = {.state = NODE_LOST}, gone = {.state = NODE_LEFT};
    static struct service s;

    (void)state;
    known = &lost;
    session_ends(&s, "one", "one:1");
    session_ends(&s, "two", "two:1");
    session_ends(&s, "two", "two:2");
    session_ends(&s, "three", NULL);
    assert_int_equal(s.relays_left_count, 2);
    relays_node_changed(&s, "one");
    assert_int_equal(s.relays_left_count, 2); /* it may come back */
    known = &gone;
    relays_node_changed(&s, "one");
    relays_node_changed(&s, "three");
    assert_int_equal(s.relays_left_count, 1);
    assert_string_equal(s.relays_left[0].address, "two:2");
    session_ends(&s, "one", "one:2");
    assert_int_equal(s.relays_left_count, 1);
    known = NULL; /* forgotten */
    relays_node_changed(&s, "two");
    assert_int_equal(s.relays_left_count, 0);
    relays_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_node_that_is_not_awaited_leaves_no_relay)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
