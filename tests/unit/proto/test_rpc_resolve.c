/* A name is looked up for a limited time. */
#include "tests/unit/base/check.h"

#include <unistd.h>

#include "proto/rpc_resolve.h"

/* A process that was stopped for a while asks with a time that is over. */
static void a_time_that_is_over_is_none(void **state)
{
    struct err e = {0};

    (void)state;
    alarm(30u * (unsigned)test_slow());
    for (int64_t limit = 0; limit > -3000; limit -= 97) {
        const enum err_code code = rpc_resolve("localhost:29600", limit, &e);
        assert_true(code == ERR_OK || code == ERR_UNAVAILABLE);
    }
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_time_that_is_over_is_none)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
