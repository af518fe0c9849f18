#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/run/hosts/endpoint.h"

static void test_own_address_is_bound(void **state)
{
    (void)state;
    CLEANUP(endpoint_release) struct endpoint four, six;
    struct err e;
    assert_int_equal(endpoint_find(&four, "127.0.0.1", 29400, &e), ERR_OK);
    assert_true(four.own);
    assert_string_equal(four.address, "127.0.0.1:29400");
    assert_string_equal(four.listen, "127.0.0.1:29400");
    assert_string_equal(four.node, "127.0.0.1");
    assert_int_equal(endpoint_find(&six, "::1", 29400, &e), ERR_OK);
    assert_true(six.own);
    assert_string_equal(six.address, "[::1]:29400");
    assert_string_equal(six.listen, "[::1]:29400");
    assert_true(four.loopback && six.loopback);
}

/* An address of the networks for documentation, which no machine has. With is_host all addresses are bound.
 */
static void test_address_of_another_machine(void **state)
{
    (void)state;
    CLEANUP(endpoint_release) struct endpoint four, six;
    struct err e;
    assert_int_equal(endpoint_find(&four, "192.0.2.1", 29500, &e), ERR_OK);
    assert_false(four.own);
    assert_false(four.loopback);
    assert_null(four.node);
    assert_string_equal(four.address, "192.0.2.1:29500");
    assert_string_equal(strrchr(four.listen, ':'), ":29500");
    assert_null(strstr(four.listen, "192.0.2.1"));
    assert_int_equal(endpoint_find(&six, "2001:db8::1", 29500, &e), ERR_OK);
    assert_false(six.own);
    assert_string_equal(six.address, "[2001:db8::1]:29500");
}

/* The name may resolve to another address on other machines. */
static void test_name_of_this_machine(void **state)
{
    (void)state;
    char name[HOST_NAME_MAX + 1] = "";
    CLEANUP(endpoint_release) struct endpoint own;
    struct err e;
    assert_int_equal(gethostname(name, sizeof(name)), 0);
    assert_int_equal(endpoint_find(&own, name, 29400, &e), ERR_OK);
    assert_true(own.own);
    assert_false(own.loopback); /* other machines can meet there, even if the name gives 127.0.1.1 here */
    assert_true(strcmp(own.listen, "[::]:29400") == 0 || strcmp(own.listen, "0.0.0.0:29400") == 0);
    assert_true(!own.node || strncmp(own.node, "127.", 4) != 0);
}

static void test_unknown_name(void **state)
{
    (void)state;
    struct endpoint none;
    struct err e;
    assert_int_equal(endpoint_find(&none, "no-such-host.invalid", 29400, &e), ERR_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "no-such-host.invalid: "));
}

static int listen_somewhere(int64_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (*port = 20000 + getpid() % 9000; *port < 32000; (*port)++) {
        at.sin_port = htons((uint16_t)*port);
        if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 1) == 0)
            return fd;
    }
    fail();
    return -1;
}

static void test_port_in_use(void **state)
{
    (void)state;
    CLEANUP(endpoint_release) struct endpoint there;
    struct err e;
    int64_t port;
    int fd = listen_somewhere(&port);
    assert_int_equal(endpoint_find(&there, "127.0.0.1", port, &e), ERR_OK);
    assert_true(endpoint_taken(&there));
    assert_false(endpoint_refuses(&there));
    close(fd);
    assert_false(endpoint_taken(&there));
    assert_true(endpoint_refuses(&there));
}

/* A loop calls this often; the other machine is only contacted at intervals. */
static void test_gone_is_checked_at_intervals(void **state)
{
    (void)state;
    CLEANUP(endpoint_release) struct endpoint there;
    struct err e;
    int64_t port;
    int fd = listen_somewhere(&port);
    assert_int_equal(endpoint_find(&there, "127.0.0.1", port, &e), ERR_OK);
    assert_false(endpoint_gone(&there, 1000));
    close(fd);
    assert_false(endpoint_gone(&there, 1000 + ENDPOINT_ASK_MS - 1));
    assert_true(endpoint_gone(&there, 1000 + ENDPOINT_ASK_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_address_is_bound), cmocka_unit_test(test_address_of_another_machine),
        cmocka_unit_test(test_name_of_this_machine), cmocka_unit_test(test_unknown_name),
        cmocka_unit_test(test_port_in_use),          cmocka_unit_test(test_gone_is_checked_at_intervals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
