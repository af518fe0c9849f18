#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/output_merge.h"
#include "client/text/term.h"
#include "client/text/term_filter.h"

/* Tests which of a job's bytes reach a terminal. Each case is tried whole, and cut in two at every byte. */

static void check_filtered(const char *text, size_t len, const char *expected)
{
    for (size_t cut = 0; cut <= len; cut++) {
        CLEANUP(buf_release) struct buf out = {0};
        struct term_filter f = {0};

        buf_puts(&out, "");
        term_filter_add(&f, text, cut, &out);
        term_filter_add(&f, text + cut, len - cut, &out);
        term_filter_finish(&f, &out);
        assert_string_equal(out.data, expected);
    }
}
#define FILTERED(text, expected) check_filtered(text, sizeof(text) - 1, expected)

static void test_harmless_output_passes(void **state)
{
    (void)state;
    FILTERED("plain\ttext\r\nnext", "plain\ttext\r\nnext");
    FILTERED(" 50%\b\b\b60%\r70%", " 50%\b\b\b60%\r70%");
    FILTERED("\033[31mred\033[0m", "\033[31mred\033[0m");
    FILTERED("\033[1;38;5;12mx\033[m", "\033[1;38;5;12mx\033[m");
    FILTERED("\033[38:2::1:2:3mx\033[0m", "\033[38:2::1:2:3mx\033[0m");
    FILTERED("a\033[2Cb\033[1Dc\033[1Gd\033[K\033[2K", "a\033[2Cb\033[1Dc\033[1Gd\033[K\033[2K");
    FILTERED("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
             "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
    FILTERED("caf\xe9 latin", "caf\xe9 latin");
}

static void test_colour_is_reset_at_the_end(void **state)
{
    (void)state;
    FILTERED("\033[31mred", "\033[31mred\033[0m");
    FILTERED("\033[31mred\033[mplain", "\033[31mred\033[mplain");
}

static void test_control_strings_are_removed(void **state)
{
    (void)state;
    FILTERED("a\033]52;c;aGVsbG8=\ab", "ab");
    FILTERED("a\033]0;title\033\\b", "ab");
    FILTERED("a\033]8;;http://x\033\\link\033]8;;\033\\b", "alinkb");
    FILTERED("a\033P$q\"p\033\\b", "ab");
    FILTERED("a\033_apc\033\\b\033^pm\033\\c\033Xsos\033\\d", "abcd");
    FILTERED("a\033]52;c;aGVs\nnext line", "a\nnext line");     /* an unfinished string ends with its line */
    FILTERED("a\033]0;t\033[31mb\033[0m", "a\033[31mb\033[0m"); /* another sequence ends it, too */
    FILTERED("a\033]0;t\030b", "ab");
}

static void test_other_sequences_are_removed(void **state)
{
    (void)state;
    FILTERED("a\033[2J\033[H\033[3Ab\033[6nc\033[?1049hd\033[!pe\033[5i", "abcde");
    FILTERED("a\033[>4;2mb\033[?4mc\033[<1md\033[1 qe", "abcde"); /* these sequences are no colours */
    FILTERED("a\033(0b\033)Bc\033cd\0337e\0338f\033=g\033#8h\033%@i", "abcdefghi");
    FILTERED("a\016b\017c\ad\013e\014f\177g\005h", "abcdefgh");
    FILTERED("a\033[31\rb", "a\rb");
    FILTERED("a\033\033[31mb\033[0m", "a\033[31mb\033[0m");
    FILTERED("a\033[", "a");
    FILTERED("a\033[1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1mb", "ab");
}

static void test_c1_controls_are_removed(void **state)
{
    (void)state;
    FILTERED("a\x9b"
             "2Jb",
             "ab");
    FILTERED("a\xc2\x9b"
             "2Jb",
             "ab");
    FILTERED("a\x9d"
             "52;c;x\x9c"
             "b",
             "ab");
    FILTERED("a\xc2\x9d"
             "52;c;x\xc2\x9c"
             "b",
             "ab");
    FILTERED("a\xc2\x90"
             "x\033\\b\x9f"
             "x\033\\c",
             "abc");
    FILTERED("a\x84\x85\xc2\x8d"
             "b",
             "ab");
    FILTERED("a\x9b"
             "31mb\033[0m",
             "a\033[31mb\033[0m"); /* an allowed CSI (0x9b) becomes ESC [ */
}

static void test_invalid_utf8(void **state)
{
    (void)state;
    FILTERED("a\xc0\x9b"
             "2Jb",
             "a\xc0"
             "b"); /* overlong ESC: the byte after it begins a CSI of its own */
    FILTERED("a\xe0\x80\x9b"
             "b",
             "a\xe0"
             ""); /* 0x80 is nothing, 0x9b begins a CSI and b ends it */
    FILTERED("a\xe2\x82\033[2Jb", "a\xe2?b");
    FILTERED("a\xf0\x9f", "a\xf0?");
}

static void test_each_stream_has_its_filter(void **state)
{
    struct output_merge m;

    (void)state;
    output_merge_init(&m);
    m.targets[0].wanted = m.targets[0].filtered = true;
    output_merge_add(&m, 0, false, "a\033]52;", 7, 0);
    output_merge_add(&m, 1, false, "c;not a clipboard\n", 18, 0);
    output_merge_add(&m, 0, false, "c;x\ab\n", 6, 0);
    output_merge_finish(&m, 0);
    assert_string_equal(m.targets[0].text.data, "[1] c;not a clipboard\n[0] ab\n");
    output_merge_release(&m);
    output_merge_init(&m);
    output_merge_add(&m, 0, false, "a\033]0;x\a\n", 8, 0); /* not a terminal */
    output_merge_finish(&m, 0);
    assert_string_equal(m.targets[0].text.data, "a\033]0;x\a\n");
    output_merge_release(&m);
}

static void test_names(void **state)
{
    CLEANUP(buf_release) struct buf out = {0};

    (void)state;
    term_printf_safe(&out, "rank %d on %s", 1,
                     "n\033[2J\xc2\x9b"
                     "1\x9b"
                     "2\n\xc3\xbc\xe2\x82\xac");
    assert_string_equal(out.data, "rank 1 on n?[2J?1?2?\xc3\xbc\xe2\x82\xac");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_harmless_output_passes),
        cmocka_unit_test(test_colour_is_reset_at_the_end),
        cmocka_unit_test(test_control_strings_are_removed),
        cmocka_unit_test(test_other_sequences_are_removed),
        cmocka_unit_test(test_c1_controls_are_removed),
        cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_each_stream_has_its_filter),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
