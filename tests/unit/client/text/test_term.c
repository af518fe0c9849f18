#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/help_fill.h"
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

static void check_wrapped(struct term term, const char *text, size_t indent, const char *expected)
{
    CLEANUP(buf_release) struct buf out = {0};
    buf_puts(&out, "before ");
    buf_puts(&out, text);
    term_wrap(&term, &out, strlen("before "), indent);
    assert_memory_equal(out.data, "before ", strlen("before "));
    assert_string_equal(out.data + strlen("before "), expected);
}

static void test_long_lines_are_broken_between_words(void **state)
{
    (void)state;
    const struct term term = {.live = true, .columns = 30};
    check_wrapped(term, "thirty columns are filled here\nshort\n", 2,
                  "thirty columns are filled here\nshort\n");
    check_wrapped(term, "thirty columns are filled here: more, and more than one line of it\n", 2,
                  "thirty columns are filled\n  here: more, and more than\n  one line of it\n");
    check_wrapped(term, "\033[31mthirty columns → filled here\033[0m\n", 0,
                  "\033[31mthirty columns → filled here\033[0m\n");
    check_wrapped(term, "a-word-that-is-longer-than-the-line-is-not-broken and another\n", 0,
                  "a-word-that-is-longer-than-the-line-is-not-broken and another\n");
    check_wrapped(term, "", 0, "");
    check_wrapped((struct term){0}, "a pipe gets every line as it is, however long\n", 0,
                  "a pipe gets every line as it is, however long\n");
}

static void test_help_is_fitted_to_a_narrow_terminal(void **state)
{
    (void)state;
    static const char help[] =
        "usage: ddpctl logs JOB [--rank R] [--stdout | --stderr] [--tail N] [-f]\n\n"
        "Prints what the workers of the newest generation wrote to standard output\n"
        "and standard error.\n\n"
        "  ddpctl logs 9 --an-example-that-is-longer-than-the-terminal-but-is-kept as it is\n\n"
        "  -f, --follow                print new output until the job ends; ^C leaves\n"
        "      --tail N                print only the last N lines (default: all\n"
        "                              of them)\n";
    CLEANUP(buf_release) struct buf out = {0};
    const struct term narrow = {.live = true, .columns = 64}, wide = {.live = true, .columns = 140};
    buf_puts(&out, help);
    help_fill(&wide, &out);
    assert_string_equal(out.data, help);
    help_fill(&narrow, &out);
    assert_string_equal(
        out.data, "usage: ddpctl logs JOB [--rank R] [--stdout | --stderr] [--tail\n"
                  "       N] [-f]\n\n"
                  "Prints what the workers of the newest generation wrote to\n"
                  "standard output and standard error.\n\n"
                  "  ddpctl logs 9 --an-example-that-is-longer-than-the-terminal-but-is-kept as it is\n\n"
                  "  -f, --follow                print new output until the job\n"
                  "                              ends; ^C leaves\n"
                  "      --tail N                print only the last N lines\n"
                  "                              (default: all of them)\n");
}

static void expect_safe(const char *text, const char *wanted)
{
    CLEANUP(buf_release) struct buf out = {0};
    term_puts_safe(&out, text);
    assert_string_equal(out.data, wanted);
}

static void test_text_of_others_cannot_change_what_is_around_it(void **state)
{
    (void)state;
    expect_safe("a\tb \xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", "a\tb \xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80");
    expect_safe("a\033[2J\x7f\n", "a?[2J??");
    expect_safe("\xc2\x9b"
                "1 \xc2\x85 \xc2\xa0",
                "?1 ? \xc2\xa0");
    /* marks of the direction: U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069 */
    expect_safe("\xd8\x9c|\xe2\x80\x8e|\xe2\x80\x8f", "?|?|?");
    expect_safe("\xe2\x80\xaa|\xe2\x80\xab|\xe2\x80\xac|\xe2\x80\xad|loss\xe2\x80\xae", "?|?|?|?|loss?");
    expect_safe("\xe2\x81\xa6|\xe2\x81\xa7|\xe2\x81\xa8|\xe2\x81\xa9", "?|?|?|?");
    expect_safe("\xe2\x80\xa8|\xe2\x80\xa9", "?|?"); /* the ends of a line and of a paragraph */
    expect_safe("\xe2\x80\x8d|\xe2\x80\xa7|\xe2\x80\xaf|\xe2\x81\xa5|\xe2\x81\xaa",
                "\xe2\x80\x8d|\xe2\x80\xa7|\xe2\x80\xaf|\xe2\x81\xa5|\xe2\x81\xaa"); /* their neighbours */
    /* not UTF-8: a byte alone, a character that is cut, overlong forms, a surrogate, past U+10FFFF */
    expect_safe("caf\xe9 \x9b \xbf \xe2\x82", "caf? ? ? ??");
    expect_safe("\xc1\x9b|\xe0\x82\x9b|\xf0\x80\x82\x9b|\xed\xa0\x80|\xf4\x90\x80\x80",
                "??|???|????|???|????");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_cut_to_the_rows_of_the_terminal),
        cmocka_unit_test(test_long_lines_are_broken_between_words),
        cmocka_unit_test(test_help_is_fitted_to_a_narrow_terminal),
        cmocka_unit_test(test_text_of_others_cannot_change_what_is_around_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
