/* Numbers, times and lists in the form that people read. */
#include "tests/unit/base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"

#define SAYS(call, expected) assert_string_equal((call).text, expected)

static void counts_have_separators_and_plurals(void **state)
{
    (void)state;
    SAYS(text_count(0), "0");
    SAYS(text_count(999), "999");
    SAYS(text_count(3540), "3,540");
    SAYS(text_count(-999), "-999");
    SAYS(text_count(-1234567), "-1,234,567");
    SAYS(text_count(INT64_MIN), "-9,223,372,036,854,775,808");
    SAYS(text_counted(0, "node"), "0 nodes");
    SAYS(text_counted(1, "node"), "1 node");
    SAYS(text_counted(-1, "node"), "-1 nodes");
    SAYS(text_counted(3540, "CPU slot"), "3,540 CPU slots");
    SAYS(text_short(812), "812");
    SAYS(text_short(3540), "3.5k");
    SAYS(text_short(999999), "1.0M");
    SAYS(text_short(8.54), "8.5");
    SAYS(text_short(NAN), "nan");
}

static void a_long_noun_is_cut(void **state)
{
    char noun[200];

    (void)state;
    memset(noun, 'x', sizeof(noun) - 1);
    noun[sizeof(noun) - 1] = 0;
    assert_int_equal(strlen(text_counted(2, noun).text), strlen("2 ") + 31 + strlen("s"));
}

static void sizes_have_three_digits(void **state)
{
    (void)state;
    SAYS(text_bytes(0), "0 B");
    SAYS(text_bytes(999), "999 B");
    SAYS(text_bytes(3300000), "3.3 MB");
    SAYS(text_bytes(139000000000), "139 GB");
    SAYS(text_bytes(999950000), "1.0 GB");
}

static void durations_use_the_fitting_unit(void **state)
{
    (void)state;
    SAYS(text_duration(-5), "0 ms");
    SAYS(text_duration(38), "38 ms");
    SAYS(text_duration(400), "0.4 s");
    SAYS(text_duration(9949), "9.9 s");
    SAYS(text_duration(9950), "10 s");
    SAYS(text_duration(59499), "59 s");
    SAYS(text_duration(59500), "1m00s");
    SAYS(text_duration(171000), "2m51s");
    SAYS(text_duration(3600000 * INT64_C(3) + 300000), "3h05m");
    SAYS(text_duration(86400000 * INT64_C(2) + 3600000 * 4), "2d04h");
    SAYS(text_age(-1), "0s");
    SAYS(text_age(1999), "1s");
    SAYS(text_age(86400000), "24h");
    SAYS(text_age(86400000 * INT64_C(2)), "2d");
}

static void clock_times_of_other_days_have_a_date(void **state)
{
    const int64_t at = INT64_C(1769868179000), day = 86400000; /* 2026-01-31 14:02:59 UTC */

    (void)state;
    setenv("TZ", "UTC", 1);
    tzset();
    SAYS(text_clock(at, at + 1000, false), "14:02");
    SAYS(text_clock(at, at + 1000, true), "14:02:59");
    SAYS(text_clock(at, at + day, false), "2026-01-31 14:02");
    SAYS(text_clock(at, at + 365 * day, true), "2026-01-31 14:02:59"); /* same day, another year */
}

static void check_list(size_t count, const char *last, const char *expected)
{
    static const char *const words[] = {"a", "b", "c", "d"};
    CLEANUP(buf_release) struct buf list = {0};

    for (size_t i = 0; i < count; i++)
        buf_printf(&list, "%s%s", text_separator(i, count, last), words[i]);
    assert_string_equal(list.data, expected);
}

static void lists_have_a_word_before_the_last_item(void **state)
{
    (void)state;
    check_list(1, " and ", "a");
    check_list(2, " and ", "a and b");
    check_list(3, " or ", "a, b or c");
    check_list(4, " and ", "a, b, c and d");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_separators_and_plurals),
        cmocka_unit_test(a_long_noun_is_cut),
        cmocka_unit_test(sizes_have_three_digits),
        cmocka_unit_test(durations_use_the_fitting_unit),
        cmocka_unit_test(clock_times_of_other_days_have_a_date),
        cmocka_unit_test(lists_have_a_word_before_the_last_item),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
