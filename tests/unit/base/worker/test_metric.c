/* The lines of metrics that workers write: which are read, and which are refused. */
#include "tests/unit/base/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/worker/metric.h"

static void parse_line(const char *text, struct metric_line *out)
{
    struct err e;

    memset(out, 0xff, sizeof(*out)); /* so that a field which parsing does not set shows */
    assert_ok(metric_line_parse(text, strlen(text), out, &e), &e);
}

static void every_number_except_step_is_a_metric(void **state)
{
    struct metric_line l;

    (void)state;
    parse_line("{\"step\": 7, \"loss\": 2.5, \"name\": \"x\", \"n\": 3, \"deep\": {\"a\": 1}, \"t\": true}",
               &l);
    assert_true(l.has_step);
    assert_int_equal(l.step, 7);
    assert_int_equal(l.count, 2);
    assert_string_equal(l.metrics[0].name, "loss");
    assert_true(l.metrics[0].value == 2.5);
    assert_string_equal(l.metrics[1].name, "n");
    parse_line("{\"step\": 1.5}", &l); /* not an integer, so a metric */
    assert_false(l.has_step);
    assert_int_equal(l.count, 1);
    parse_line("{}", &l);
    assert_int_equal(l.count, 0);
}

static void a_loss_that_is_nan_is_read(void **state)
{
    static const char *const texts[] = {"{\"loss\": NaN}", "{\"loss\": -Infinity}", "{\"loss\": Infinity}",
                                        "{\"loss\": null}", "{\"NaN\": NaN, \"x\\\"NaN\": 1}"};
    struct metric_line l;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        parse_line(texts[i], &l);
        assert_true(isnan(l.metrics[0].value));
    }
    assert_string_equal(l.metrics[0].name, "NaN"); /* in a string NaN is text, not a number */
    assert_string_equal(l.metrics[1].name, "x\"NaN");
}

static void too_many_or_too_long_names_are_left_out(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct metric_line l;

    (void)state;
    buf_puts(&text, "{\"\": 1, \"");
    for (int i = 0; i < METRIC_NAME; i++)
        buf_putc(&text, 'a');
    buf_puts(&text, "\": 1");
    for (int i = 0; i < 100; i++)
        buf_printf(&text, ", \"m%d\": %d", i, i);
    buf_puts(&text, ", \"step\": 3}");
    parse_line(text.data, &l);
    assert_int_equal(l.count, METRIC_LINE_COUNT);
    assert_string_equal(l.metrics[0].name, "m0");
    assert_int_equal(l.step, 3); /* found behind too many metrics, too */
}

static void a_refused_line_has_a_reason(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "expected a JSON object"},
        {"x", "expected a JSON object"},
        {"[1]", "expected a JSON object such as {\"step\": 10, \"loss\": 1.4}"},
        {"1", "expected a JSON object"},
        {"\"{}\"", "expected a JSON object"},
        {"{\"a\":1", "byte 7 of the line: expected ',' or '}'"},
        {"{\"a\":1}}", "byte 8 of the line: expected the end of the line"},
        {"{\"a\":1,}", "byte 8 of the line: expected '\"'"},
        {"{\"a\" 1}", "byte 6 of the line: expected ':'"},
        {"{\"a\":01}", "byte 7 of the line: expected ',' or '}'"},
        {"{\"a\":1.}", "byte 8 of the line: expected a digit"},
        {"{\"a\":-}", "byte 7 of the line: expected a digit"},
        {"{\"a\":nan}", "byte 6 of the line: expected a value"},
        {"{\"a\":1,\"a\":2}", "the line names a metric twice"},
        {"{\"step\":1,\"step\":2}", "the line names a metric twice"},
        {"{\"a\":1e999}", "the number is too large"},
        {"{\"a\":123456789012345678901234567890}", "the integer is too large"},
        {"{\"\xff\":1}", "the line is not UTF-8"},
        {"{\"\xed\xa0\x80\":1}", "the line is not UTF-8"},
        {"{\"a\\u0000\":1}", "the escape names no character"},
        {"{\"a\\ud800\":1}", "the second half of a surrogate pair"},
        {"{\"a\\x\":1}", "unknown escape"},
        {"{\"a\\u00g0\":1}", "four hexadecimal digits"},
        {"{\"a\tb\":1}", "control character in a text"},
        {"{\"a", "a text does not end"},
        {"{\"a\": [1, 2}", "expected ',' or ']'"},
        {"{\"a\": {\"b\": tru}}", "expected a value"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct metric_line l;
        struct err e = {0};

        assert_int_equal(metric_line_parse(rows[i].text, strlen(rows[i].text), &l, &e), ERR_INVALID_ARGUMENT);
        if (!strstr(e.msg, rows[i].why))
            fail_msg("%s: '%s', expected '%s'", rows[i].text, e.msg, rows[i].why);
    }
}

static void escapes_in_names_are_decoded(void **state)
{
    struct metric_line l;

    (void)state;
    parse_line("{\"\\u00e4\\/\\t\\u20ac\\ud83d\\ude00\\u0001\": 1, \"\\u0073tep\": 4}", &l);
    assert_string_equal(l.metrics[0].name, "\xc3\xa4/\t\xe2\x82\xac\xf0\x9f\x98\x80\x01");
    assert_true(l.has_step && l.step == 4);
}

/* The reader is recursive, so the depth has a limit. */
static void deep_values_have_a_limit(void **state)
{
    for (int depth = 60; depth < 70; depth++) {
        CLEANUP(buf_release) struct buf text = {0};
        struct metric_line l;
        struct err e = {0};

        (void)state;
        buf_puts(&text, "{\"a\":");
        for (int i = 1; i < depth; i++)
            buf_putc(&text, '[');
        for (int i = 1; i < depth; i++)
            buf_putc(&text, ']');
        buf_puts(&text, ",\"loss\":1}");
        if (depth <= 64)
            parse_line(text.data, &l);
        else
            assert_int_equal(metric_line_parse(text.data, text.len, &l, &e), ERR_INVALID_ARGUMENT);
    }
}

static void a_line_has_a_limit(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct metric_line l;
    struct err e = {0};

    (void)state;
    buf_puts(&text, "{\"loss\":");
    while (text.len < METRIC_LINE_MAX - 4)
        buf_putc(&text, ' ');
    buf_puts(&text, "NaN}"); /* the longest line */
    assert_int_equal(text.len, METRIC_LINE_MAX);
    parse_line(text.data, &l);
    assert_int_equal(l.count, 1);
    buf_putc(&text, ' ');
    assert_int_equal(metric_line_parse(text.data, text.len, &l, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the line is longer than 16384 bytes");
}

static void an_encoded_line_reads_back_the_same(void **state)
{
    static const double values[] = {0.1, 1e-310, 0.10000000000000002, 1.7976931348623157e308, -0.0, 1e22};
    CLEANUP(buf_release) struct buf text = {0};
    struct metric_line made = {.has_step = true, .step = INT64_MAX}, back;
    char name[16];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        snprintf(name, sizeof(name), "m%zu", i);
        assert_true(metric_line_add(&made, name, values[i]));
    }
    assert_true(metric_line_add(&made, "bad", NAN)); /* accepted, but not encoded */
    metric_line_encode(&made, &text);
    assert_null(strstr(text.data, "bad"));
    parse_line(text.data, &back);
    assert_true(back.step == made.step);
    assert_int_equal(back.count, ARRAY_LEN(values));
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        assert_true(back.metrics[i].value == values[i]); /* -0.0 == 0.0: the sign of zero may be lost */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_except_step_is_a_metric),
        cmocka_unit_test(a_loss_that_is_nan_is_read),
        cmocka_unit_test(too_many_or_too_long_names_are_left_out),
        cmocka_unit_test(a_refused_line_has_a_reason),
        cmocka_unit_test(escapes_in_names_are_decoded),
        cmocka_unit_test(deep_values_have_a_limit),
        cmocka_unit_test(a_line_has_a_limit),
        cmocka_unit_test(an_encoded_line_reads_back_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
