#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/format.h"

#define SAYS(call, text_) assert_string_equal((call).text, text_)

static void test_counts(void **state)
{
    (void)state;
    SAYS(fmt_count(0), "0");
    SAYS(fmt_count(999), "999");
    SAYS(fmt_count(3540), "3,540");
    SAYS(fmt_count(-1234567), "-1,234,567");
    SAYS(fmt_count(INT64_MIN + 1), "-9,223,372,036,854,775,807");
    SAYS(fmt_short(812), "812");
    SAYS(fmt_short(3540), "3.5k");
    SAYS(fmt_short(999999), "1.0M");
    SAYS(fmt_short(8.54), "8.5");
}

static void test_sizes(void **state)
{
    (void)state;
    SAYS(fmt_bytes(0), "0 B");
    SAYS(fmt_bytes(999), "999 B");
    SAYS(fmt_bytes(3300000), "3.3 MB");
    SAYS(fmt_bytes(139000000000), "139 GB");
    SAYS(fmt_bytes(999950000), "1.0 GB");
}

static void test_durations(void **state)
{
    (void)state;
    SAYS(fmt_duration(-5), "0 ms");
    SAYS(fmt_duration(38), "38 ms");
    SAYS(fmt_duration(400), "0.4 s");
    SAYS(fmt_duration(59949), "59.9 s");
    SAYS(fmt_duration(59950), "1m00s");
    SAYS(fmt_duration(171000), "2m51s");
    SAYS(fmt_duration(3600000 * INT64_C(3) + 300000), "3h05m");
    SAYS(fmt_duration(86400000 * INT64_C(2) + 3600000 * 4), "2d04h");
    SAYS(fmt_age(1999), "1s");
    SAYS(fmt_age(86400000), "24h");
}

static void test_metrics(void **state)
{
    (void)state;
    SAYS(fmt_metric(1.41234), "1.412");
    SAYS(fmt_metric(0.83), "0.83");
    SAYS(fmt_metric(4.1e-4), "4.1e-4");
    SAYS(fmt_metric(1e-10), "1.0e-10");
    SAYS(fmt_metric(12), "12");
    SAYS(fmt_metric(NAN), "nan");
    SAYS(fmt_metric(-INFINITY), "-inf");
}

static void test_bars(void **state)
{
    (void)state;
    SAYS(fmt_bar(0.5, 4), "██░░");
    SAYS(fmt_bar(7, 2), "██");
    SAYS(fmt_bar(NAN, 2), "░░");
    const double values[] = {9, 3, NAN, 1, 2};
    SAYS(fmt_spark(values, 5, 4), "█?▁▅");
    SAYS(fmt_spark(values, 0, 4), "");
}

static void test_widths(void **state)
{
    (void)state;
    assert_int_equal(text_width("8× H200"), 7);
    assert_int_equal(text_clip("a█b", 2), 4);
    assert_int_equal(text_clip("ab", 9), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),  cmocka_unit_test(test_sizes), cmocka_unit_test(test_durations),
        cmocka_unit_test(test_metrics), cmocka_unit_test(test_bars),  cmocka_unit_test(test_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
