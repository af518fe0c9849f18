#include "tests/unit/base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/supervisor/report_reader.h"

static bool parse(const char *line, struct spawn_report *out)
{
    memset(out, 0, sizeof(*out));
    return report_parse(line, strlen(line), out);
}

static void numbers_become_metrics_but_the_step(void **state)
{
    struct spawn_report r;

    (void)state;
    assert_true(parse(
        "{\"step\": 7, \"loss\": 2.5, \"name\": \"x\", \"n\": 3, \"deep\": {\"a\": 1}, \"t\": true}", &r));
    assert_true(r.has_step);
    assert_int_equal(r.step, 7);
    assert_int_equal(r.count, 2);
    assert_string_equal(r.metrics[0].name, "loss");
    assert_true(r.metrics[0].value == 2.5);
    assert_string_equal(r.metrics[1].name, "n");
    assert_true(parse("{\"step\": 1.5}", &r)); /* not an integer, so a metric */
    assert_false(r.has_step);
    assert_int_equal(r.count, 1);
    assert_true(parse("{}", &r));
}

static void a_loss_that_is_nan_is_reported(void **state)
{
    static const char *const lines[] = {"{\"loss\": NaN}", "{\"loss\": -Infinity}", "{\"loss\": Infinity}",
                                        "{\"loss\": null}", "{\"NaN\": NaN, \"x\\\"NaN\": 1}"};
    struct spawn_report r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        assert_true(parse(lines[i], &r));
        assert_true(isnan(r.metrics[0].value));
    }
    assert_string_equal(r.metrics[0].name, "NaN"); /* inside a string NaN is text */
    assert_string_equal(r.metrics[1].name, "x\"NaN");
}

static void a_line_that_is_not_an_object_is_refused(void **state)
{
    static const char *const lines[] = {
        "", "x", "[1]", "1", "{\"a\":1", "{\"a\":1}}", "{\"a\":1,\"a\":2}", "\"{}\""};
    struct spawn_report r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        assert_false(parse(lines[i], &r));
}

static void too_many_or_too_long_names_are_left_out(void **state)
{
    CLEANUP(buf_release) struct buf line = {0};
    struct spawn_report r;

    (void)state;
    buf_puts(&line, "{\"");
    for (int i = 0; i < 100; i++)
        buf_putc(&line, 'a');
    buf_puts(&line, "\": 1");
    for (int i = 0; i < 100; i++)
        buf_printf(&line, ", \"m%d\": %d", i, i);
    buf_puts(&line, "}");
    assert_true(parse(line.data, &r));
    assert_int_equal(r.count, REPORT_METRICS);
    assert_string_equal(r.metrics[0].name, "m0");
}

struct seen {
    int count;
    int64_t last;
};

static void see(void *ctx, const struct spawn_report *report)
{
    struct seen *seen = ctx;

    seen->count++;
    seen->last = report->step;
}

static void lines_may_arrive_in_pieces(void **state)
{
    static const char text[] = "{\"step\":1}\n\n{\"step\":2}\njunk\n{\"step\":3}\n{\"step\":4}";

    (void)state;
    for (size_t piece = 1; piece < sizeof(text); piece++) {
        struct report_reader r = {0};
        struct seen seen = {0};

        for (size_t at = 0; at < sizeof(text) - 1; at += piece)
            report_feed(&r, text + at, sizeof(text) - 1 - at < piece ? sizeof(text) - 1 - at : piece, see,
                        &seen);
        assert_int_equal(seen.count, 3); /* the last line is not complete */
        assert_int_equal(seen.last, 3);
        assert_int_equal(r.bad, 1);
        report_reader_release(&r);
    }
}

static void an_endless_line_is_skipped(void **state)
{
    struct report_reader r = {0};
    struct seen seen = {0};
    char chunk[4096];

    (void)state;
    memset(chunk, 'x', sizeof(chunk));
    for (int i = 0; i < 100; i++)
        report_feed(&r, chunk, sizeof(chunk), see, &seen);
    assert_true(r.line.cap <= 2 * REPORT_LINE_MAX);
    report_feed(&r, "\n{\"step\":9}\n", 12, see, &seen);
    assert_int_equal(r.bad, 1);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.last, 9);
    report_reader_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_become_metrics_but_the_step),
        cmocka_unit_test(a_loss_that_is_nan_is_reported),
        cmocka_unit_test(a_line_that_is_not_an_object_is_refused),
        cmocka_unit_test(too_many_or_too_long_names_are_left_out),
        cmocka_unit_test(lines_may_arrive_in_pieces),
        cmocka_unit_test(an_endless_line_is_skipped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
