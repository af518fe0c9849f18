#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "base/worker/metric.h"
#include "daemon/supervisor/report_reader.h"

struct seen {
    int count;
    struct buf text; /* the lines, each with its '\n' */
};

static void note_line(void *ctx, const char *line)
{
    struct seen *seen = ctx;

    seen->count++;
    buf_printf(&seen->text, "%s\n", line);
}

static void lines_may_arrive_in_pieces(void **state)
{
    static const char text[] =
        "{\"step\":1}\n\n{\"step\": 2.50, \"x\": NaN }\n{\"a\"}\n{\"step\":3}\n[1]\n{\"step\":4}";

    (void)state;
    for (size_t piece = 1; piece < sizeof(text); piece++) {
        struct report_reader r = {0};
        struct seen seen = {0};

        for (size_t at = 0; at < sizeof(text) - 1; at += piece)
            report_feed(&r, text + at, sizeof(text) - 1 - at < piece ? sizeof(text) - 1 - at : piece,
                        note_line, &seen);
        assert_int_equal(seen.count, 3); /* the last line is not complete */
        assert_string_equal(seen.text.data, "{\"step\":1}\n{\"step\": 2.50, \"x\": NaN }\n{\"step\":3}\n");
        assert_int_equal(r.refused, 2);
        assert_string_equal(r.first_error.msg, "byte 5 of the line: expected ':'"); /* of two */
        buf_release(&seen.text);
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
        report_feed(&r, chunk, sizeof(chunk), note_line, &seen);
    assert_true(r.line.cap <= 2 * METRIC_LINE_MAX);
    report_feed(&r, "\n{\"step\":9}\n", 12, note_line, &seen);
    assert_int_equal(r.refused, 1);
    assert_string_equal(r.first_error.msg, "the line is longer than 16384 bytes");
    assert_string_equal(seen.text.data, "{\"step\":9}\n");
    buf_release(&seen.text);
    report_reader_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_may_arrive_in_pieces),
        cmocka_unit_test(an_endless_line_is_skipped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
