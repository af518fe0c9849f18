/* Numbers for names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "daemon/coordinator/core/name_table.h"

static void names_have_numbers_in_the_order_in_which_they_come(void **state)
{
    struct name_table t = {0};
    char name[16];

    (void)state;
    assert_int_equal(name_table_find(&t, "node0"), NAME_NONE);
    for (uint32_t i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "node%u", i * 7919 % 300);
        assert_int_equal(name_table_add(&t, name, i), i);
    }
    for (uint32_t i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "node%u", i * 7919 % 300);
        assert_int_equal(name_table_find(&t, name), i);
        assert_string_equal(name_table_name(&t, i), name);
        /* whether the guess is right, wrong or no number of a name */
        assert_int_equal(name_table_add(&t, name, i), i);
        assert_int_equal(name_table_add(&t, name, 299 - i), i);
        assert_int_equal(name_table_add(&t, name, NAME_NONE), i);
    }
    assert_int_equal(name_table_find(&t, "node300"), NAME_NONE);
    assert_int_equal(t.count, 300);
    name_table_release(&t);
    assert_int_equal(name_table_find(&t, "node0"), NAME_NONE);
    name_table_release(&t); /* empty */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_numbers_in_the_order_in_which_they_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
