#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "client/connect.h"

/* Tests the messages for a coordinator that cannot be reached. */

static struct err explain_error_from(const char *from, const char *address, enum err_code code,
                                     const char *msg)
{
    const struct link link = {.target = {.address = (char *)(uintptr_t)address, .from = from}};
    struct err e;
    err_set(&e, code, "%s", msg);
    const enum err_code said = link_explain(&link, &e);
    assert_int_equal(said, e.code);
    return e;
}

static struct err explain_error(const char *address, enum err_code code, const char *msg)
{
    return explain_error_from("--coordinator", address, code, msg);
}

static void test_no_address_given(void **state)
{
    (void)state;
    struct err e = explain_error_from("the default", "unix:/none", ERR_UNAVAILABLE,
                                      "failed to connect; last error: UNKNOWN: No such file");
    assert_non_null(strstr(e.msg, "no coordinator is named, and unix:/none does not answer (UNKNOWN: No"));
    assert_non_null(strstr(e.msg, "set DDP_COORDINATOR=HOST:29600 to the coordinator's machine, or start"));
}

static void test_unreachable(void **state)
{
    (void)state;
    struct err e = explain_error("unix:/none", ERR_UNAVAILABLE,
                                 "failed to connect; last error: UNKNOWN: unix:/none: No such file");
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_non_null(
        strstr(e.msg, "(from --coordinator) does not answer (UNKNOWN: unix:/none: No such file)"));
    assert_non_null(strstr(e.msg, "): start ddp-coordinator there"));
}

static void test_foreign_socket(void **state)
{
    (void)state;
    struct err e = explain_error(
        "unix:/var/lib/ddp/coordinator.sock", ERR_UNAVAILABLE,
        "failed to connect; last error: UNKNOWN: unix:/var/lib/ddp/coordinator.sock: Permission denied");
    assert_int_equal(e.code, ERR_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "(from --coordinator) is open to its owner and root only"));
}

static void test_other_errors(void **state)
{
    (void)state;
    struct err e = explain_error("box1:29600", ERR_UNAUTHENTICATED, "token");
    assert_non_null(strstr(e.msg, "refuses a call without a token: give --token FILE"));
    e = explain_error("box1:29600", ERR_NOT_FOUND, "there is no job 9");
    assert_string_equal(e.msg, "there is no job 9");
}

/* Listens at a free port of 127.0.0.1. */
static int listen_somewhere(int64_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* The token goes to no other user, and to nobody who may come, also after the first call. */
static void test_owner_of_the_port(void **state)
{
    (void)state;
    struct link link = {.target = {.address = (char[]){"127.0.0.1"}}};
    struct err e;
    void *reply;
    assert_int_equal(link_check_owner(&link, &e), ERR_OK); /* no port to check */
    int fd = listen_somewhere(&link.own_port);
    assert_int_equal(link_check_owner(&link, &e), ERR_OK);
    close(fd);
    assert_int_equal(link_check_owner(&link, &e), ERR_UNAVAILABLE);
    assert_int_equal(link_call(&link, "GetVersion", NULL, &reply, 0, &e), ERR_UNAVAILABLE);
    if (geteuid() != 0)
        return; /* only root can listen as another user */
    assert_int_equal(seteuid(1), 0);
    fd = listen_somewhere(&link.own_port);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(link_check_owner(&link, &e), ERR_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "another user listens at 127.0.0.1 now"));
    assert_int_equal(link_call(&link, "GetVersion", NULL, &reply, 0, &e), ERR_PERMISSION_DENIED);
    assert_int_equal(link_call_within(&link, "GetVersion", NULL, &reply, 9, &e), ERR_PERMISSION_DENIED);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_address_given),  cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_foreign_socket),    cmocka_unit_test(test_other_errors),
        cmocka_unit_test(test_owner_of_the_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
