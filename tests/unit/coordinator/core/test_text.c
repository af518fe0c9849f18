/* Numbers for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/coordinator/core/text.h"

static void numbers_are_formatted_for_people(void **state)
{
    char count[TEXT_COUNT], span[TEXT_SPAN], ago[TEXT_AGO];

    (void)state;
    assert_string_equal(text_count(count, 0), "0");
    assert_string_equal(text_count(count, 999), "999");
    assert_string_equal(text_count(count, -1234567), "-1,234,567");
    assert_string_equal(text_span(span, 12), "12 ms");
    assert_string_equal(text_span(span, 420), "0.4 s");
    assert_string_equal(text_span(span, 18000), "18 s");
    assert_string_equal(text_span(span, 1200000), "20 min");
    assert_string_equal(text_noticed(ago, -5), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_formatted_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
