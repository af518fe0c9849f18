#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/format.h"

#define SAYS(call, text_) assert_string_equal((call).text, text_)

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

static void test_fold_ascii(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf text = {0};
    buf_puts(&text, "2×4 → ██░ ▁█… 61°C ñ 漢 ok");
    text_fold_ascii(&text);
    assert_string_equal(text.data, "2x4 > ##- _#~ 61 C ? ? ok");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold_ascii),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_bars),
        cmocka_unit_test(test_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
