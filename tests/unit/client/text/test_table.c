#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/text/table.h"

static void test_span_widens_its_last_column(void **state)
{
    (void)state;
    static const struct table_column columns[] = {{"A", false}, {"B", true}, {"C", false}};
    struct table *t = table_new(columns, 3);
    struct buf out = {0};
    struct term plain = {0};
    table_cell(t, STYLE_NONE, "1");
    table_cell(t, STYLE_NONE, "22");
    table_cell(t, STYLE_NONE, "x");
    table_end_row(t);
    table_span(t, 2, STYLE_NONE, "waits for it");
    table_cell(t, STYLE_NONE, "y");
    table_end_row(t);
    table_cell(t, STYLE_NONE, "3");
    table_end_row(t);
    table_print(t, &plain, &out);
    assert_string_equal(out.data, "A          B  C\n"
                                  "1         22  x\n"
                                  "waits for it  y\n"
                                  "3\n");
    buf_clear(&out);
    struct term narrow = {.live = true, .columns = 12};
    table_print(t, &narrow, &out);
    assert_string_equal(out.data, "A       B  C\n"
                                  "1      22  x\n"
                                  "waits fo…  y\n"
                                  "3\n");
    buf_release(&out);
    table_free(t);
}

/* Rows of a table whose cells must all be seen on a narrow terminal. */
static void test_narrow_table_cuts_names_then_leaves_columns_out(void **state)
{
    (void)state;
    static const struct table_column columns[] = {{"JOB", true},
                                                  {"NAME", .most = 24},
                                                  {"LOSS", .spare = TABLE_LATE},
                                                  {"USER", .spare = 1},
                                                  {"REASON", .wrap = true}};
    struct table *t = table_new(columns, 5);
    struct buf out = {0};
    static const char *const row[] = {"7", "a-name-of-24-characters", "0.125", "root",
                                      "waits before the next restart"};
    for (size_t i = 0; i < 5; i++)
        table_cell(t, STYLE_NONE, row[i]);
    table_end_row(t);
    struct term wide = {.live = true, .columns = 80}, narrow = {.live = true, .columns = 50},
                narrower = {.live = true, .columns = 36};
    assert_int_equal(table_print(t, &wide, &out), 0);
    buf_clear(&out);
    assert_int_equal(table_print(t, &narrow, &out), 1);
    assert_string_equal(out.data, "JOB  NAME                  LOSS   REASON\n"
                                  "  7  a-name-of-24-charac…  0.125  waits before the\n"
                                  "                                  next restart\n");
    buf_clear(&out);
    assert_int_equal(table_print(t, &narrower, &out), 2);
    assert_string_equal(out.data, "JOB  NAME          REASON\n"
                                  "  7  a-name-of-2…  waits before the\n"
                                  "                   next restart\n");
    buf_release(&out);
    table_free(t);
}

static void test_wide_characters_keep_columns_aligned(void **state)
{
    (void)state;
    static const struct table_column columns[] = {{"A", .most = 6}, {"B"}};
    struct table *t = table_new(columns, 2);
    struct buf out = {0};
    struct term term = {.live = true, .columns = 40};
    for (size_t i = 0; i < 3; i++) {
        table_cell(t, STYLE_NONE, ((const char *const[]){"日本語日本", "e\xcc\x81t\xc3\xa9", "abc"})[i]);
        table_cell(t, STYLE_NONE, "x");
        table_end_row(t);
    }
    table_print(t, &term, &out);
    assert_string_equal(out.data, "A       B\n"
                                  "日本…   x\n"
                                  "e\xcc\x81t\xc3\xa9     x\n"
                                  "abc     x\n");
    buf_release(&out);
    table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_span_widens_its_last_column),
        cmocka_unit_test(test_narrow_table_cuts_names_then_leaves_columns_out),
        cmocka_unit_test(test_wide_characters_keep_columns_aligned),
    };
    setlocale(LC_CTYPE, "C.UTF-8"); /* widths of characters */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
