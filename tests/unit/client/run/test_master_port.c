#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/run/master_port.h"

/* Listens on any free port. */
static int listen_somewhere(int *fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);

    *fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(*fd >= 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(*fd, 1), 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&at, &size), 0);
    return ntohs(at.sin_port);
}

static void test_free_port_is_the_whole_range(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf talk = {0};
    int fd, port = listen_somewhere(&fd);
    close(fd);
    CLEANUP(free_text) char *range = master_port_range(port, &talk);
    CLEANUP(free_text) char *expected = xasprintf("%d-%d", port, port);
    assert_string_equal(range, expected);
    assert_int_equal(talk.len, 0);
}

static void test_busy_port_is_reported_and_not_used(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf talk = {0};
    int fd, port = listen_somewhere(&fd);
    assert_null(master_port_range(port, &talk));
    assert_non_null(strstr(talk.data, "ddpctl: warning: --master-port "));
    assert_non_null(strstr(talk.data, "already in use; the workers get another MASTER_PORT\n"));
    close(fd);
}

static void test_no_port_asks_for_nothing(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf talk = {0};
    assert_null(master_port_range(0, &talk));
    assert_int_equal(talk.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_port_is_the_whole_range),
        cmocka_unit_test(test_busy_port_is_reported_and_not_used),
        cmocka_unit_test(test_no_port_asks_for_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
