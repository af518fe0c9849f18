#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/cmd/jobs/since.h"

static void a_date_must_exist(void **state)
{
    static const char *const wrong[] = {"2026-02-31", "2025-02-29", "2026-04-31 12:00", "2026-13-01",
                                        "2026-1"};
    struct err e;
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(since_parse(wrong[i], &ms, &e), ERR_INVALID_ARGUMENT);
}

static void a_date_is_local_time(void **state)
{
    struct err e = {0};
    int64_t ms;

    (void)state;
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    tzset();
    assert_int_equal(since_parse("2028-02-29", &ms, &e), ERR_OK);
    assert_int_equal(ms, INT64_C(1835391600000));
    /* 2:30 does not exist on this day: the clock goes from 2 to 3. */
    assert_int_equal(since_parse("2026-03-29 02:30", &ms, &e), ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_date_must_exist),
        cmocka_unit_test(a_date_is_local_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
