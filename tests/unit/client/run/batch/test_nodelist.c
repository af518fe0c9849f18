#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "client/run/batch/nodelist.h"

static void expect_nodes(const char *text, const char *expected)
{
    CLEANUP(buf_release) struct buf joined = {0};
    char **nodes = NULL;
    struct err e;
    assert_int_equal(nodelist_expand(text, &nodes, &e), ERR_OK);
    for (char **node = nodes; *node; node++)
        buf_printf(&joined, "%s%s", node == nodes ? "" : " ", *node);
    assert_string_equal(joined.data, expected);
    strv_free(nodes);
}

static void expect_refusal(const char *text, const char *why)
{
    char **nodes = NULL;
    struct err e;
    assert_int_equal(nodelist_expand(text, &nodes, &e), ERR_INVALID_ARGUMENT);
    if (!strstr(e.msg, why))
        fail_msg("'%s' says: %s", text, e.msg);
    assert_null(nodes);
}

static void test_plain_names(void **state)
{
    (void)state;
    expect_nodes("box1", "box1");
    expect_nodes("box1,gpu-7.example.org,c", "box1 gpu-7.example.org c");
}

static void test_ranges(void **state)
{
    (void)state;
    expect_nodes("n[1-2]", "n1 n2");
    expect_nodes("box[1-3,7],gpu[01-02]", "box1 box2 box3 box7 gpu01 gpu02");
    expect_nodes("n[8-11]", "n8 n9 n10 n11");
    expect_nodes("n[008-011,5]", "n008 n009 n010 n011 n5");
    expect_nodes("n[098-102]", "n098 n099 n100 n101 n102");
    expect_nodes("n[7]", "n7");
    expect_nodes("[1-2]", "1 2");
}

static void test_several_brackets(void **state)
{
    (void)state;
    expect_nodes("rack[1-2]-n[01-02]", "rack1-n01 rack1-n02 rack2-n01 rack2-n02");
    expect_nodes("n[1-2].ib,x", "n1.ib n2.ib x");
}

static void test_invalid_lists(void **state)
{
    char deep[8 + 40 * 3 + 1] = "n";
    (void)state;
    for (int i = 0; i < 40; i++)
        strcat(deep, "[1]");
    expect_refusal("", "an empty name");
    expect_refusal("a,,b", "an empty name");
    expect_refusal("a,", "an empty name");
    expect_refusal("n[1-2", "do not match");
    expect_refusal("n1-2]", "do not match");
    expect_refusal("n[1-[2]]", "do not match");
    expect_refusal("n[]", "a number is missing or too large");
    expect_refusal("n[1-]", "a number is missing or too large");
    expect_refusal("n[a]", "a number is missing or too large");
    expect_refusal("n[1;2]", "between numbers");
    expect_refusal("n[1-2-3]", "between numbers");
    expect_refusal("n[2-1]", "reversed");
    expect_refusal("n[1-99999999]", "too long");
    expect_refusal("n[1-999999999999]", "a number is missing or too large");
    expect_refusal("a[1-300]b[1-300]", "too many nodes");
    expect_refusal(deep, "too many brackets");
}

static void test_counts(void **state)
{
    (void)state;
    assert_int_equal(nodelist_count_at("4", 0), 4);
    assert_int_equal(nodelist_count_at("4", 1), -1);
    assert_int_equal(nodelist_count_at("2(x2),1", 1), 2);
    assert_int_equal(nodelist_count_at("2(x2),1", 2), 1);
    assert_int_equal(nodelist_count_at("2(x2),1", 3), -1);
    assert_int_equal(nodelist_count_at("1,2,16(x1000)", 1001), 16);
    assert_int_equal(nodelist_count_at("", 0), -1);
    assert_int_equal(nodelist_count_at("x", 0), -1);
    assert_int_equal(nodelist_count_at("2(x", 0), -1);
    assert_int_equal(nodelist_count_at("2(x2;1", 0), -1);
    assert_int_equal(nodelist_count_at("2;1", 1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_names),      cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_several_brackets), cmocka_unit_test(test_invalid_lists),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
