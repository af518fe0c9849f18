/* Connections that wait too long for a request are shut down, and what one user holds is counted. */
#include "tests/unit/base/check.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/web/web_connections.h"

static bool socket_is_open(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static void a_request_that_takes_long_is_ended(void **state)
{
    struct web_connections all;
    struct web_connection list[3] = {0};
    int ends[3][2];
    (void)state;
    web_connections_init(&all);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
        list[i].fd = ends[i][0];
        web_connections_add(&all, &list[i], 1000 + i);
    }
    web_connections_wait(&all, &list[0], 0); /* is answered, which may take longer */
    web_connections_end_late(&all, 1000);
    assert_true(socket_is_open(ends[0][1]) && socket_is_open(ends[1][1]));
    web_connections_end_late(&all, 1001);
    assert_true(socket_is_open(ends[0][1]) && socket_is_open(ends[2][1]));
    assert_false(socket_is_open(ends[1][1]));
    web_connections_wait(&all, &list[0], 2000);
    web_connections_remove(&all, &list[2]);
    web_connections_end_late(&all, 2000);
    assert_false(socket_is_open(ends[0][1]));
    assert_true(socket_is_open(ends[2][1]));
    web_connections_remove(&all, &list[0]);
    web_connections_remove(&all, &list[1]);
    web_connections_release(&all);
    for (int i = 0; i < 3; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
}

static void shares_are_counted_by_owner(void **state)
{
    enum { ana = 1, ben };
    struct web_connections all;
    struct web_connection list[] = {{.owner = ana, .streams = true, .bytes = 5},
                                    {.owner = ana, .bytes = 7},
                                    {.owner = ben, .bytes = 11},
                                    {.streams = true}};
    (void)state;
    web_connections_init(&all);
    for (int i = 0; i < 4; i++)
        web_connections_add(&all, &list[i], 1);
    const struct web_share of_ana = web_connections_share(&all, ana), of_all = web_connections_share(&all, 0);
    assert_int_equal(of_ana.connections, 2);
    assert_int_equal(of_ana.streams, 1);
    assert_int_equal(of_ana.bytes, 12);
    assert_int_equal(of_all.connections, 4);
    assert_int_equal(of_all.streams, 2);
    assert_int_equal(of_all.bytes, 23);
    for (int i = 0; i < 4; i++)
        web_connections_remove(&all, &list[i]);
    web_connections_release(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_takes_long_is_ended),
        cmocka_unit_test(shares_are_counted_by_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
