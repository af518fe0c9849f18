#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cmocka.h>

#include "base/mem.h"
#include "proto/rpc_connections.h"

/* Which connections are accepted, and which is dropped to make room for a new one. */

#define MOST 100
static struct rpc_connections connections;
static struct rpc_connection all[MOST];
static bool inside[MOST];

static struct rpc_origin origin_from(const char *text)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        return rpc_origin_of((const struct sockaddr *)&four);
    assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    return rpc_origin_of((const struct sockaddr *)&six);
}

/* Offers a connection. Returns the number of the connection that was dropped for it, -1 if none was, and -2
 * if there was no room. */
static int connection_comes(int number, const char *text)
{
    const struct rpc_origin origin = origin_from(text);
    bool full;
    struct rpc_connection *victim = rpc_connections_find_victim(&connections, &origin, &full);

    if (full)
        return -2;
    if (victim) {
        rpc_connections_remove(&connections, victim);
        inside[victim - all] = false;
    }
    rpc_connections_add(&connections, &all[number], &origin);
    inside[number] = true;
    return victim ? (int)(victim - all) : -1;
}

static void connection_moves(int number, enum rpc_stage stage)
{
    rpc_connections_move(&connections, &all[number], stage);
}

static int begin_connections(void **state)
{
    const struct rpc_limits limits = {
        .total = 10, .per_address = 8, .unauthenticated = 6, .unauthenticated_per_address = 4};

    (void)state;
    rpc_connections_init(&connections, &limits, 7);
    return 0;
}

static int end_connections(void **state)
{
    (void)state;
    for (int i = 0; i < MOST; i++)
        if (inside[i])
            rpc_connections_remove(&connections, &all[i]);
    memset(inside, 0, sizeof(inside));
    assert_int_equal(connections.ring_count, 0);
    assert_null(connections.turn);
    rpc_connections_release(&connections);
    return 0;
}

static void a_flood_displaces_its_own_connections(void **state)
{
    (void)state;
    assert_int_equal(connection_comes(0, "10.0.0.1"), -1);
    for (int i = 1; i < 5; i++)
        assert_int_equal(connection_comes(i, "10.0.0.9"), -1);
    for (int i = 5; i < 20; i++)
        assert_int_equal(connection_comes(i, "10.0.0.9"), i - 4); /* the oldest of this address */
    assert_int_equal(connection_comes(20, "10.0.0.2"), -1);
    /* There are six unauthenticated connections, the most allowed: the address with most of them loses one.
     * */
    assert_int_equal(connection_comes(21, "10.0.0.3"), 16);
    assert_true(inside[0]);
}

static void silent_connections_are_dropped_first(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        connection_comes(i, "10.0.0.9");
    connection_moves(0, RPC_TRIED);
    connection_moves(1, RPC_SPOKEN);
    assert_int_equal(connection_comes(4, "10.0.0.9"), 2);
    assert_int_equal(connection_comes(5, "10.0.0.9"), 3);
    connection_moves(4, RPC_SPOKEN);
    connection_moves(5, RPC_SPOKEN);
    assert_int_equal(connection_comes(6, "10.0.0.9"), 1);
    connection_moves(6, RPC_TRIED);
    connection_moves(4, RPC_TRIED);
    connection_moves(5, RPC_TRIED);
    assert_int_equal(connection_comes(7, "10.0.0.9"), 0);
}

static void admitted_connections_are_never_dropped(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(connection_comes(i, "10.0.0.9"), -1);
        connection_moves(i, RPC_ADMITTED);
    }
    assert_int_equal(connection_comes(8, "10.0.0.9"), -2);
    assert_int_equal(connection_comes(8, "10.0.0.1"), -1);
    connection_moves(8, RPC_ADMITTED);
    assert_int_equal(connection_comes(9, "10.0.0.1"), -1);
    assert_int_equal(connection_comes(10, "10.0.0.2"), 9);
    connection_moves(10, RPC_ADMITTED);
    assert_int_equal(connection_comes(11, "10.0.0.3"), -2);
}

static void addresses_take_turns(void **state)
{
    int order[4];

    (void)state;
    for (int i = 0; i < 3; i++)
        connection_comes(i, "10.0.0.9");
    connection_comes(3, "10.0.0.1");
    for (int i = 0; i < 4; i++)
        connection_moves(i, RPC_SPOKEN);
    for (int i = 0; i < 4; i++) {
        struct rpc_connection *next = rpc_connections_next_to_hand_over(&connections);

        assert_non_null(next);
        order[i] = (int)(next - all);
        connection_moves(order[i], RPC_TRIED);
    }
    assert_null(rpc_connections_next_to_hand_over(&connections));
    assert_true(order[0] == 3 || order[1] == 3); /* not after all three of the other address */
    rpc_connections_move_front(&connections, &all[2]);
    assert_ptr_equal(rpc_connections_first_of_largest(&connections, RPC_TRIED), &all[2]);
}

static void an_ipv6_network_counts_as_one_address(void **state)
{
    const struct rpc_origin one = origin_from("2001:db8::1"), same = origin_from("2001:db8::ffff:2"),
                            four = origin_from("10.0.0.1"), mapped = origin_from("::ffff:10.0.0.1"),
                            other = origin_from("2001:db8:0:1::1");

    (void)state;
    assert_memory_equal(&one, &same, sizeof(one));
    assert_memory_equal(&four, &mapped, sizeof(four));
    assert_memory_not_equal(&one, &other, sizeof(one));
    assert_memory_not_equal(&one, &four, sizeof(one));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin_connections, end_connections)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_flood_displaces_its_own_connections),  TEST(silent_connections_are_dropped_first),
        TEST(admitted_connections_are_never_dropped), TEST(addresses_take_turns),
        TEST(an_ipv6_network_counts_as_one_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
