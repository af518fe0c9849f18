#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/live_line.h"

/* The text may come in one piece or byte by byte. */
static void check_line(const char *text, size_t columns, const char *expected)
{
    for (size_t step = 1; step <= strlen(text); step += step == 1 ? strlen(text) : 1) {
        struct live_line line = {0};
        CLEANUP(buf_release) struct buf out = {0};
        for (size_t i = 0; i < strlen(text); i += step)
            live_line_add(&line, text + i, step);
        live_line_put(&line, "[7] ", 4, columns, &out);
        assert_string_equal(out.data, expected);
        live_line_release(&line);
    }
}

static void test_new_text_covers_old_text(void **state)
{
    (void)state;
    check_line("10%\r20%", 0, "[7] 20%");
    check_line("\r\r10%\r20%\r", 0, "[7] 20%");
    check_line("windows\r", 0, "[7] windows");
    check_line("100%\r\033[Kok", 0, "[7] \033[Kok");
    check_line("100%\r\033[31mok\033[0m\033[K", 0, "[7] \033[31mok\033[0m\033[K");
    check_line("\033[31mred\033[Ky", 0, "[7] \033[31mred\033[Ky\033[0m");
    check_line("█████\rabcd\tx", 0, "[7] abcd\tx");
}

/* The terminal puts the shorter text over the longer one, from the column after the label. */
static void test_shorter_text_covers_a_part(void **state)
{
    (void)state;
    check_line("working |\r-", 0, "[7] working |\033[5G-");
    check_line("working |\r-\r\\\r|", 0, "[7] working |\033[5G|");
    check_line("abcdef\rabcd\rab\rxyz", 0, "[7] abcdef\033[5Gabcd\033[5Gxyz");
    check_line("abcdef\rab\b\b\bx\033[1D\033[Ky", 0, "[7] ab\b\b\bx\033[1D\033[Ky");
}

static void test_too_long_for_the_terminal(void **state)
{
    (void)state;
    check_line("12345", 10, "[7] 12345");
    check_line("123456", 10, "[7] 23456"); /* it only grows: its end is what is new */
    check_line("\r123456", 10, "[7] 12345");
    check_line("123456\rabc", 10, "[7] 12345\033[5Gabc");
    check_line("\033[31m1\033[32m2█4567", 10, "[7] \033[31m\033[32m█4567\033[0m");
    check_line("1234", 3, "[7] 4");
}

static void test_end_of_a_very_long_line(void **state)
{
    (void)state;
    struct live_line line = {0};
    CLEANUP(buf_release) struct buf out = {0};
    for (int i = 0; i < 100000; i++)
        live_line_add(&line, "█", strlen("█"));
    live_line_add(&line, "end", 3);
    live_line_put(&line, "[7] ", 4, 10, &out);
    assert_string_equal(out.data, "[7] ██end");
    buf_clear(&out);
    live_line_put(&line, "", 0, 0, &out);
    assert_int_equal(out.len, 100000 * strlen("█") + 3);
    live_line_release(&line);
}

static void test_blank_lines(void **state)
{
    (void)state;
    struct live_line line = {0};
    assert_true(live_line_is_blank(&line));
    live_line_add(&line, "100%\r    \r", 10);
    assert_true(live_line_is_blank(&line));
    live_line_add(&line, "x", 1);
    assert_false(live_line_is_blank(&line));
    live_line_clear(&line);
    assert_true(live_line_is_blank(&line));
    live_line_release(&line);
}

static void test_progress_bar_takes_no_memory(void **state)
{
    (void)state;
    struct live_line line = {0};
    for (int i = 0; i < 100000; i++) {
        char text[32];
        snprintf(text, sizeof(text), "\r%6d/100000", i);
        live_line_add(&line, text, strlen(text));
    }
    assert_string_equal(line.text.data, " 99999/100000");
    assert_in_range(line.text.cap, 0, 256);
    live_line_release(&line);
}

/* The time for a byte does not grow with the line. */
static void test_each_byte_is_read_once(void **state)
{
    (void)state;
    enum { WIDE = 50000, NARROW = 10000 };
    struct live_line line = {0};
    for (int i = 0; i < WIDE; i++)
        live_line_add(&line, "x", 1);
    for (int i = 0; i < NARROW; i++)
        live_line_add(&line, "\ry\033[31mz\r", 9);
    assert_int_equal(line.steps, WIDE + 3 * NARROW);
    assert_int_equal(line.text.len, WIDE + 9);
    assert_int_equal(line.count, 2);
    live_line_release(&line);
}

/* A piece that grows covers the older pieces one after the other. */
static void test_pieces_of_all_widths(void **state)
{
    (void)state;
    enum { WIDTHS = 300 };
    struct live_line line = {0};
    for (int width = WIDTHS; width > 0; width--) {
        for (int i = 0; i < width; i++)
            live_line_add(&line, "x", 1);
        live_line_add(&line, "\r", 1);
    }
    assert_int_equal(line.count, WIDTHS);
    for (size_t width = 1; width <= WIDTHS; width++) {
        live_line_add(&line, "y", 1);
        assert_int_equal(line.count, WIDTHS - width + 1);
    }
    assert_int_equal(line.text.len, WIDTHS);
    assert_int_equal(line.steps, WIDTHS * (WIDTHS + 1) / 2 + WIDTHS);
    live_line_release(&line);
}

/* Pictures and Chinese characters take two columns, also if a character comes in parts. */
static void test_wide_characters(void **state)
{
    (void)state;
    struct live_line line = {0};
    struct buf out = {0};
    live_line_add(&line, "\r日本語 \xf0\x9f", 13);
    live_line_add(&line, "\x9a\x80", 2);
    assert_int_equal(line.pieces[0].most, 9);
    live_line_put(&line, "", 0, 6, &out);
    assert_string_equal(out.data, "日本");
    live_line_add(&line, "\rabcdefgh", 9);
    assert_int_equal(line.count, 2);
    live_line_add(&line, "i", 1);
    assert_int_equal(line.count, 1);
    buf_release(&out);
    live_line_release(&line);
}

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8"); /* widths of characters */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_text_covers_old_text),  cmocka_unit_test(test_shorter_text_covers_a_part),
        cmocka_unit_test(test_too_long_for_the_terminal), cmocka_unit_test(test_blank_lines),
        cmocka_unit_test(test_end_of_a_very_long_line),   cmocka_unit_test(test_progress_bar_takes_no_memory),
        cmocka_unit_test(test_each_byte_is_read_once),    cmocka_unit_test(test_pieces_of_all_widths),
        cmocka_unit_test(test_wide_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
