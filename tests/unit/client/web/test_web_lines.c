/* Output of ranks becomes lines of JSON, however it comes in pieces. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "client/web/web_lines.h"

static void line_add_at(struct web_lines *w, int64_t written_ms, int32_t rank, bool standard_error,
                        const char *text)
{
    Ddp__V1__LogData data = DDP__V1__LOG_DATA__INIT;
    data.rank = rank;
    data.standard_error = standard_error;
    data.generation = 1;
    data.written_ms = written_ms;
    data.data.data = (uint8_t *)(uintptr_t)text;
    data.data.len = strlen(text);
    web_lines_add(w, &data);
}

static void line_add(struct web_lines *w, int32_t rank, bool standard_error, const char *text)
{
    line_add_at(w, 0, rank, standard_error, text);
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
    text[16384] = '\0';
    line_add(&w, 0, false, text);
    line_add(&w, 0, false, "\n");
    assert_int_equal(w.count, 1);
}

/* The texts of the lines, each with a line feed behind it. */
static void assert_texts(struct web_lines *w, const char *expected)
{
    CLEANUP(json_release) json_t *list = NULL;
    CLEANUP(buf_release) struct buf json = {0}, texts = {0};
    struct err e;

    buf_printf(&json, "[%s]", w->json.len ? w->json.data : "");
    assert_int_equal(json_parse(json.data, json.len, 1 << 20, &list, &e), ERR_OK);
    buf_puts(&texts, "");
    for (size_t i = 0; i < json_array_size(list); i++)
        buf_printf(&texts, "%s\n", json_get_text(json_array_get(list, i), "text", "?"));
    assert_string_equal(texts.len ? texts.data : "", expected);
    web_lines_clear(w);
}

/* As on a terminal: the next text replaces that before it. */
static void the_last_text_of_a_progress_bar_is_its_line(void **state)
{
    CLEANUP(web_lines_release) struct web_lines w = {0};
    (void)state;
    line_add(&w, 0, true, "\r 0%|  |");
    line_add(&w, 0, true, "\r50%|# |\r");
    assert_texts(&w, "");
    line_add(&w, 0, true, "100%|##|\n");
    assert_texts(&w, "100%|##|\n");
    line_add(&w, 0, true, " 5%\r10%\r   \rnext\nline\n");
    assert_texts(&w, "next\nline\n");
    line_add(&w, 0, true, "60%\r     \r\n");
    assert_texts(&w, "");
    line_add(&w, 0, true, "60%\r\033[2K\r\n");
    assert_texts(&w, "");
    line_add(&w, 0, true, "\nafter\r\n\r\n");
    assert_texts(&w, "\nafter\n\n");
    line_add(&w, 0, true, "70%\r80%");
    web_lines_finish(&w);
    assert_texts(&w, "80%\n");
}

static void a_slow_progress_bar_shows_where_it_is(void **state)
{
    CLEANUP(web_lines_release) struct web_lines w = {0};
    char text[16];
    (void)state;
    for (int i = 0; i <= 25; i++) { /* a second each */
        snprintf(text, sizeof(text), "%d\r", i);
        line_add_at(&w, 1000 + 1000 * i, 0, true, text);
    }
    assert_texts(&w, "9\n19\n");
    line_add_at(&w, 30000, 0, true, "done\n");
    assert_texts(&w, "done\n");
    line_add_at(&w, 90000, 0, true, "0\r");
    line_add_at(&w, 91000, 0, true, "1\r"); /* a bar of its own */
    assert_texts(&w, "");
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
        cmocka_unit_test(the_last_text_of_a_progress_bar_is_its_line),
        cmocka_unit_test(a_slow_progress_bar_shows_where_it_is),
        cmocka_unit_test(a_missing_part_is_always_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
