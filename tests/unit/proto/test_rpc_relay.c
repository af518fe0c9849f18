#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "proto/rpc_gate_run.h"

/* The relay measures how late gRPC reads. Tested is which unread bytes count. */

struct bench {
    struct rpc_gate gate;
    struct rpc_relay relay;
    int grpc; /* gRPC's end of the socket */
};

static int relay_setup(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    b->relay.gate = &b->gate;
    b->relay.back.fd = pair[0];
    b->grpc = pair[1];
    assert_int_equal(write(pair[0], "words", 5), 5);
    relay_track_unread(&b->relay, true);
    *state = b;
    return 0;
}

static int relay_teardown(void **state)
{
    struct bench *b = *state;

    close(b->relay.back.fd);
    close(b->grpc);
    free(b);
    return 0;
}

static void bytes_that_grpc_does_not_read_count_as_unread(void **state)
{
    struct bench *b = *state;
    char taken[8];

    assert_true(relay_is_unread(&b->relay, 1000));
    assert_true(relay_is_unread(&b->relay, 1100));
    assert_int_equal(b->relay.unread_ms, 1000);
    assert_int_equal(read(b->grpc, taken, sizeof(taken)), 5);
    assert_false(relay_is_unread(&b->relay, 1200));
    assert_false(b->relay.tracked);
}

/* gRPC stops reading while its answers are not read. That is the fault of the client, so it must not count.
 * */
static void a_client_that_reads_no_answers_does_not_count_as_unread(void **state)
{
    struct bench *b = *state;

    b->relay.down.len = 9;
    assert_false(relay_is_unread(&b->relay, 1000));
    assert_false(relay_is_unread(&b->relay, 1100));
    assert_true(b->relay.tracked);
    b->relay.down.len = 0;
    assert_true(relay_is_unread(&b->relay, 1200));
    assert_int_equal(b->relay.unread_ms, 1200);
}

/* A forked process holds a copy of every descriptor until it calls exec. */
static void a_closed_connection_has_no_events(void **state)
{
    struct rpc_gate *gate = xcalloc(1, sizeof(*gate));
    struct rpc_tcp_listener listener = {0};
    struct rpc_origin origin = {0};
    struct rpc_limits limits = {0};
    struct epoll_event event;
    int pair[2];

    (void)state;
    gate->epoll = epoll_create1(EPOLL_CLOEXEC);
    assert_true(gate->epoll >= 0);
    rpc_connections_init(&gate->connections, &limits, 1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    int copy = dup(pair[0]);
    struct rpc_relay *relay = relay_open(gate, &listener, pair[0]);
    rpc_connections_add(&gate->connections, &relay->connection, &origin);
    assert_true(gate_socket_set_events(gate, &relay->tcp, EPOLLIN));
    assert_int_equal(write(pair[1], "words", 5), 5);
    assert_int_equal(epoll_wait(gate->epoll, &event, 1, 0), 1);
    relay_close(relay, false);
    assert_int_equal(epoll_wait(gate->epoll, &event, 1, 0), 0);
    relay_free(relay);
    rpc_connections_release(&gate->connections);
    close(copy);
    close(pair[1]);
    close(gate->epoll);
    free(gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_that_grpc_does_not_read_count_as_unread, relay_setup,
                                        relay_teardown),
        cmocka_unit_test_setup_teardown(a_client_that_reads_no_answers_does_not_count_as_unread, relay_setup,
                                        relay_teardown),
        cmocka_unit_test(a_closed_connection_has_no_events),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
