#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/term.h"

static void expect_fit(size_t rows, const char *text, bool newest, const char *wanted)
{
    CLEANUP(buf_release) struct buf from = {0}, out = {0};
    const struct term term = {.live = true, .rows = rows};
    buf_puts(&from, text);
    term_fit(&term, &from, newest, &out);
    assert_string_equal(out.len ? out.data : "", wanted);
}

static void test_text_is_cut_to_the_rows_of_the_terminal(void **state)
{
    (void)state;
    expect_fit(0, "JOB\n1\n2\n3\n4\n", true, "JOB\n1\n2\n3\n4\n");
    expect_fit(6, "JOB\n1\n2\n3\n4\n", true, "JOB\n1\n2\n3\n4\n");
    expect_fit(5, "JOB\n1\n2\n3\n4\n", true, "JOB\n2\n3\n4\n");
    expect_fit(3, "JOB\n1\n2\n3\n4\n", true, "JOB\n4\n");
    expect_fit(4, "head\nstep\nrank\n0\n1\n", false, "head\nstep\nrank\n");
    expect_fit(4, "", false, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_cut_to_the_rows_of_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
