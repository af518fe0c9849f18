#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/match/nearest.h"
#include "base/mem.h"

static const char *const names[] = {"coordinator", "node", "nodes", "slots", "slots-per-gpu"};

static void expect_nearest(const char *word, const char *name)
{
    const char *got = nearest_name(word, names, ARRAY_LEN(names));
    if (name)
        assert_string_equal(got ? got : "nothing", name);
    else
        assert_null(got);
}

static void test_typing_errors(void **state)
{
    (void)state;
    expect_nearest("ndoes", "nodes"); /* two swapped letters are one edit */
    expect_nearest("slotz", "slots");
    expect_nearest("cordinator", "coordinator");
    expect_nearest("slots_per_gpu", "slots-per-gpu");
}

static void test_abbreviations(void **state)
{
    (void)state;
    expect_nearest("coord", "coordinator");
    expect_nearest("co", NULL);
}

static void test_other_words(void **state)
{
    (void)state;
    expect_nearest("xyzzy", NULL);
    expect_nearest("a-word-that-is-much-longer-than-any-name", NULL);
    assert_null(nearest_name("node", NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typing_errors),
        cmocka_unit_test(test_abbreviations),
        cmocka_unit_test(test_other_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
