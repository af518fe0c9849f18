/* Output of ranks becomes lines of JSON, however it comes in pieces. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "client/web/web_lines.h"

static void line_add(struct web_lines *w, int32_t rank, bool standard_error, const char *text)
{
    Ddp__V1__LogData data = DDP__V1__LOG_DATA__INIT;
    data.rank = rank;
    data.standard_error = standard_error;
    data.generation = 1;
    data.data.data = (uint8_t *)(uintptr_t)text;
    data.data.len = strlen(text);
    web_lines_add(w, &data);
}

#define LINE(rank, err, text)                                                                                \
    "{\"rank\":" rank ",\"stderr\":" err ",\"generation\":1,\"written_ms\":0,\"text\":\"" text "\"}"

static void pieces_become_lines(void **state)
{
    CLEANUP(web_lines_release) struct web_lines w = {0};
    (void)state;
    line_add(&w, 0, false, "one\ntw");
    line_add(&w, 1, false, "other\r\n");
    line_add(&w, 0, true, "error\n");
    assert_string_equal(w.json.data, LINE("0", "false", "one") "," LINE("1", "false", "other") "," LINE(
                                         "0", "true", "error"));
    web_lines_clear(&w);
    line_add(&w, 0, false, "o\n\nend");
    web_lines_finish(&w);
    assert_string_equal(w.json.data,
                        LINE("0", "false", "two") "," LINE("0", "false", "") "," LINE("0", "false", "end"));
}

static void a_long_line_is_divided(void **state)
{
    CLEANUP(web_lines_release) struct web_lines w = {0};
    CLEANUP(free_text) char *text = xcalloc(1, 100001);
    (void)state;
    memset(text, 'x', 100000);
    line_add(&w, 0, false, text);
    web_lines_finish(&w);
    assert_int_equal(w.count, 7); /* of 16 KiB */
    web_lines_clear(&w);
    web_lines_finish(&w);
    assert_int_equal(w.count, 0);
}

static void line_note(struct web_lines *w, const char *note, bool incomplete)
{
    Ddp__V1__LogData data = DDP__V1__LOG_DATA__INIT;
    data.rank = -1;
    data.note = (char *)(uintptr_t)note;
    data.incomplete = incomplete;
    web_lines_add(w, &data);
}

static void a_missing_part_is_always_noted(void **state)
{
    CLEANUP(web_lines_release) struct web_lines told = {0}, untold = {0};
    (void)state;
    line_note(&told, "node box2 is lost: its part of the logs is missing", false);
    assert_false(told.incomplete);
    web_lines_clear(&told); /* a viewer has this note already */
    line_note(&told, "", true);
    assert_true(told.incomplete);
    assert_int_equal(told.notes.len, 0);
    line_add(&untold, 0, false, "one\n");
    line_note(&untold, "", true);
    assert_true(untold.incomplete);
    assert_string_equal(untold.notes.data, "\"a part of the logs is missing\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_become_lines),
        cmocka_unit_test(a_long_line_is_divided),
        cmocka_unit_test(a_missing_part_is_always_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
