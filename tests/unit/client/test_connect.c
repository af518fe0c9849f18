#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/connect.h"

/* Tests the messages for a coordinator that cannot be reached. */

static struct err explain_error(const char *address, enum err_code code, const char *msg)
{
    const struct link link = {.target = {.address = (char *)(uintptr_t)address, .from = "--coordinator"}};
    struct err e;
    err_set(&e, code, "%s", msg);
    const enum err_code said = link_explain(&link, &e);
    assert_int_equal(said, e.code);
    return e;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_foreign_socket),
        cmocka_unit_test(test_other_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
