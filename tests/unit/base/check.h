#ifndef DDP_TESTS_UNIT_BASE_CHECK_H
#define DDP_TESTS_UNIT_BASE_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A call that must do its work; on failure the test shows the message. */
#define assert_ok(call, e)                                                                                   \
    do {                                                                                                     \
        if (call)                                                                                            \
            fail_msg("%s: %s", #call, (e)->msg);                                                             \
    } while (0)

#endif
