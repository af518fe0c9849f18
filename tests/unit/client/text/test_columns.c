#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/columns.h"

static void test_columns_of_characters(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len, size, columns;
    } cases[] = {
        {"a", 1, 1, 1},
        {"\xc3\xa9x", 3, 2, 1},        /* e with an accent */
        {"\xcc\x81", 2, 2, 0},         /* an accent that joins the character before it */
        {"\xe6\x97\xa5\xe6", 4, 3, 2}, /* a Chinese character */
        {"\xf0\x9f\x9a\x80", 4, 4, 2}, /* a rocket */
        {"\xe2\x96\x88", 3, 3, 1},     /* a block */
        {"\xe6\x97"
         "a",
         3, 2, 1}, /* broken */
        {"\x97\x97z", 3, 2, 1},
        {"\xff", 1, 1, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t columns = 99;
        assert_int_equal(columns_of_next(cases[i].text, cases[i].len, &columns), cases[i].size);
        assert_int_equal(columns, cases[i].columns);
    }
}

static void test_cut_characters(void **state)
{
    (void)state;
    assert_true(columns_are_known("a", 1));
    assert_true(columns_are_known("\xe6\x97\xa5", 3));
    assert_false(columns_are_known("\xe6\x97", 2));
    assert_false(columns_are_known("\xe6", 1));
    assert_true(columns_are_known("\xe6z", 2));
    assert_true(columns_are_known("\xff", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_of_characters),
        cmocka_unit_test(test_cut_characters),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
