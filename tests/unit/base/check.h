#ifndef DDP_TESTS_UNIT_BASE_CHECK_H
#define DDP_TESTS_UNIT_BASE_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Expects ERR_OK from the call; otherwise the test fails with the message in e. */
#define assert_ok(call, e)                                                                                   \
    do {                                                                                                     \
        if (call)                                                                                            \
            fail_msg("%s: %s", #call, (e)->msg);                                                             \
    } while (0)

/* $DDP_TEST_SLOW multiplies deadlines, for example on an emulated processor. */
static inline int test_slow(void)
{
    const char *times = getenv("DDP_TEST_SLOW");
    int factor = times ? atoi(times) : 1;

    return factor > 1 ? factor : 1;
}

#endif
