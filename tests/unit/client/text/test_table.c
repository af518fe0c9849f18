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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_span_widens_its_last_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
