#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/prefix.h"

static void add_text(struct prefixer *p, int rank, const char *text, struct buf *out)
{
    prefixer_add(p, rank, false, text, strlen(text), out);
}

static void test_ranks_never_mix_within_a_line(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0};
    prefixer_init(&p, true, false);
    add_text(&p, 0, "he", &out);
    add_text(&p, 1, "wor", &out);
    add_text(&p, 0, "llo\nmo", &out);
    add_text(&p, 1, "ld\n\n", &out);
    prefixer_finish(&p, &out);
    assert_string_equal(out.data, "[0] hello\n[1] world\n[1] \n[0] mo\n");
    prefixer_release(&p);
    buf_release(&out);
}

static void test_raw_passes_bytes(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0};
    prefixer_init(&p, false, false);
    p.raw = true;
    add_text(&p, 0, "50%\r", &out);
    add_text(&p, 0, "60%", &out);
    prefixer_finish(&p, &out);
    assert_string_equal(out.data, "50%\r60%");
    prefixer_release(&p);
    buf_release(&out);
}

static void test_label_of_a_stream(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0};
    prefixer_init(&p, false, false);
    p.raw = true;
    prefixer_label(&p, 3, false, "[trainer1]:");
    add_text(&p, 3, "he", &out);
    add_text(&p, 0, "raw ", &out);
    add_text(&p, 3, "llo\nend", &out);
    prefixer_finish(&p, &out);
    assert_string_equal(out.data, "raw [trainer1]:hello\n[trainer1]:end\n");
    prefixer_release(&p);
    buf_release(&out);
}

static void test_line_without_end_is_cut(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0}, line = {0};
    prefixer_init(&p, true, true);
    for (int i = 0; i < 1 << 20; i++)
        buf_putc(&line, 'x');
    for (int i = 0; i < 15; i++)
        prefixer_add(&p, 3, true, line.data, line.len, &out);
    assert_int_equal(out.len, 0);
    prefixer_add(&p, 3, true, line.data, line.len, &out);
    assert_int_equal(out.len, (16 << 20) + 1 + strlen("\033[35m[3]\033[0m "));
    prefixer_release(&p);
    buf_release(&out);
    buf_release(&line);
}

/* Logs are read in pieces of 64 KiB, and several ranks take turns. */
static void test_long_line_stays_whole(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0}, piece = {0};
    prefixer_init(&p, true, false);
    for (int i = 0; i < 1 << 16; i++)
        buf_putc(&piece, 'x');
    for (int i = 0; i < 5; i++) {
        prefixer_add(&p, 0, false, piece.data, piece.len, &out);
        prefixer_add(&p, 1, false, "other\n", 6, &out);
    }
    add_text(&p, 0, "end\n", &out);
    assert_int_equal(strncmp(out.data, "[1] other\n[1] other\n[1] other\n[1] other\n[1] other\n[0] xxx", 57),
                     0);
    assert_int_equal(out.len, 5 * strlen("[1] other\n") + strlen("[0] ") + 5 * piece.len + strlen("end\n"));
    prefixer_release(&p);
    buf_release(&out);
    buf_release(&piece);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_never_mix_within_a_line),
        cmocka_unit_test(test_raw_passes_bytes),
        cmocka_unit_test(test_label_of_a_stream),
        cmocka_unit_test(test_line_without_end_is_cut),
        cmocka_unit_test(test_long_line_stays_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
