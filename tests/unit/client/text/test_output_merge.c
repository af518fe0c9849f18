#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/output_merge.h"
#include "tests/unit/client/text/merge_fixture.h"

/* What ranks write and when, on a clock of the test's own. A row without text only lets time pass. */
struct event {
    int64_t at_ms;
    int rank;
    const char *text;
    const char *expected; /* all that is written after this row since the one before */
};

static void check_events(struct output_merge *m, const struct event *events, const char *last)
{
    int64_t now = 0;
    for (; events->expected; events++) {
        now = events->at_ms;
        if (events->text)
            merge_add_text(m, events->rank, events->text, now);
        else
            output_merge_tick(m, now);
        merge_check_text(&m->targets[0], events->expected);
    }
    assert_int_equal(output_merge_waits(m), *last != 0);
    output_merge_finish(m, now);
    assert_false(output_merge_waits(m));
    merge_check_text(&m->targets[0], last);
    output_merge_release(m);
}

static struct output_merge merge_for_pipe(void)
{
    struct output_merge m;
    output_merge_init(&m);
    return m;
}

/* Dim lines hide nothing, wherever the text is cut: within a character, or within a control sequence. */
static void test_dim_errors_are_whole_at_every_cut(void **state)
{
    static const char text[] = "a\xe2\x80\x9d\033[31mtail\033[0m\nb\n";
    const size_t len = sizeof(text) - 1;

    (void)state;
    for (size_t cut = 0; cut <= len; cut++) {
        CLEANUP(buf_release) struct buf seen = {0};
        struct output_merge m;

        output_merge_init(&m);
        m.joined = true;
        m.targets[0].filtered = m.targets[0].colour = m.targets[0].dims_errors = true;
        output_merge_add(&m, 0, true, text, cut, 0);
        output_merge_add(&m, 0, true, text + cut, len - cut, 0);
        output_merge_finish(&m, 0);
        assert_non_null(strstr(m.targets[0].text.data, "\033[2m"));
        assert_non_null(strstr(m.targets[0].text.data, "\033[31m"));
        for (const char *at = m.targets[0].text.data; *at;)
            if (*at == '\033') /* every sequence here is a colour */
                at += strcspn(at, "m") + 1;
            else
                buf_putc(&seen, *at++);
        assert_string_equal(seen.data, "a\xe2\x80\x9dtail\nb\n");
        output_merge_release(&m);
    }
}

static void test_ranks_never_mix_within_a_line(void **state)
{
    (void)state;
    struct output_merge m = merge_for_terminal();
    const struct event events[] = {
        {0, 0, "he", ""},
        {1, 1, "wor", ""},
        {2, 0, "llo\nmo", "[0] hello\n"},
        {3, 1, "ld\n\n", "[1] world\n[1] \n"},
        {0},
    };
    check_events(&m, events, "[0] mo\n");
}

static void test_incomplete_line_passes_after_a_wait(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    const struct event events[] = {
        {0, 0, "load", ""},
        {99, 0, NULL, ""},
        {100, 0, NULL, "load"},
        {101, 0, "ing", "ing"}, /* the rest comes at once */
        {400, 1, "hello\n", "\nhello\n"},
        {500, 0, "...", ""},
        {600, 0, NULL, "..."},
        {900, 1, "world\n", "\nworld\n"},
        {901, 0, "\n", ""}, /* the inserted line end stands for it */
        {902, 0, "done\n", "done\n"},
        {0},
    };
    check_events(&m, events, "");
}

static void test_text_before_a_carriage_return_passes_at_once(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    const struct event events[] = {
        {0, 0, "10%\r", "10%\r"}, /* some bars write it behind the text */
        {1, 0, "20%\r", "20%\r"},
        {2, 1, "hello\n", "\nhello\n"},
        {3, 0, "30%\r", "30%\r"},
        {4, 0, "\n", "\n"},
        {5, 0, "\r10%", ""}, /* tqdm writes it before the text */
        {6, 0, "\r20%", "\r10%\r20%"},
        {7, 1, "hello\n", ""}, /* 20% may not be complete */
        {8, 0, "\r30%", "\nhello\n"},
        {108, 0, NULL, "\r30%"},
        {0},
    };
    check_events(&m, events, "");
}

static void test_every_piece_has_its_label(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    output_merge_label(&m, 0, false, "[trainer0]:");
    output_merge_label(&m, 1, false, "[trainer1]:");
    const struct event events[] = {
        {0, 0, "\r10%", ""},
        {50, 0, "\r20%", "\r[trainer0]:10%\r[trainer0]:20%"},
        {151, 1, "hello\r\n\n", "\n[trainer1]:hello\r\n[trainer1]:\n"},
        {160, 0, "...", ""},
        {260, 0, NULL, "[trainer0]:..."},
        {361, 1, "world\n", "\n[trainer1]:world\n"},
        {362, 0, "\n", ""},
        {363, 0, "end", ""},
        {0},
    };
    check_events(&m, events, "[trainer0]:end\n");
}

/* A long line is not cut by another rank's text while it grows. */
static void test_lines_wait_for_a_line_that_grows(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    const struct event events[] = {
        {0, 0, "a", ""},     {100, 0, NULL, "a"},
        {150, 0, "b", "b"},  {160, 1, "one\ntwo\nthr", ""},
        {200, 0, "c", "c"},  {290, 0, "d\n", "d\none\ntwo\nthr"}, /* "thr" has waited, too */
        {300, 0, "e", ""},   {390, 1, "ee\n", "ee\n"},
        {400, 0, NULL, "e"}, {0},
    };
    check_events(&m, events, "");
}

static void test_lines_do_not_wait_for_ever(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    struct output_target *t = &m.targets[0];
    merge_add_text(&m, 0, ".", 0);
    output_merge_tick(&m, 100);
    merge_add_text(&m, 0, ".", 105);
    merge_check_text(t, "..");
    for (int64_t now = 110; now < 1110; now += 50) {
        if (now == 110)
            merge_add_text(&m, 1, "hello\n", now);
        merge_add_text(&m, 0, ".", now);
        merge_check_text(t, ".");
    }
    merge_add_text(&m, 0, ".", 1110);
    merge_check_text(t, ".\nhello\n");
    output_merge_release(&m);
}

/* On a terminal that is shared with ddpctl of other hosts, or that cannot move its cursor. */
static void test_colour_ends_before_text_of_others(void **state)
{
    (void)state;
    struct output_merge m = merge_for_terminal();
    struct buf lines = {0};
    buf_puts(&lines, "ddpctl: stopping\n");
    m.shared = true;
    m.targets[0].filtered = true;
    merge_add_text(&m, 0, "\033[31m10%\r", 0);
    merge_check_text(&m.targets[0], "[0] \033[31m10%\r");
    merge_add_text(&m, 1, "hello\n", 1); /* an inserted line end */
    merge_check_text(&m.targets[0], "\033[0m\n[1] hello\n");
    merge_add_text(&m, 0, "\033[31mred\n", 2);
    merge_add_text(&m, 0, "still red\n", 3);
    merge_check_text(&m.targets[0], "[0] \033[31mred\n[0] still red\n");
    merge_add_text(&m, 1, "hello\n", 4); /* a whole line */
    merge_check_text(&m.targets[0], "\033[0m[1] hello\n");
    merge_add_text(&m, 0, "\033[32m20%\r", 5);
    merge_add_text(&m, 0, "\033[0mplain\r", 6);
    output_merge_say(&m, true, &lines);
    merge_check_text(&m.targets[0], "[0] \033[32m20%\r[0] \033[0mplain\r\nddpctl: stopping\n");
    merge_add_text(&m, 0, "\033[32m30%\r", 7);
    output_merge_say(&m, true, &lines);
    merge_check_text(&m.targets[0], "[0] \033[32m30%\r\033[0m\nddpctl: stopping\n");
    buf_release(&lines);
    output_merge_release(&m);
}

/* In a pipe only line ends are inserted. */
static void test_colour_in_a_pipe(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    const struct event events[] = {
        {0, 0, "\033[31m10%\r", "\033[31m10%\r"}, {1, 1, "hello\n", "\nhello\n"}, {0}};
    check_events(&m, events, "");
}

static void test_raw_passes_bytes(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    m.targets[0].raw = true;
    const struct event events[] = {{0, 0, "50%\r", "50%\r"}, {0, 0, "60%", "60%"}, {0}};
    check_events(&m, events, "");
}

static void test_label_of_a_stream(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    m.targets[0].raw = true;
    output_merge_label(&m, 3, false, "[trainer1]:");
    const struct event events[] = {
        {0, 3, "he", ""},
        {1, 0, "raw ", "raw "},
        {2, 3, "llo\nend", "\n[trainer1]:hello\n"},
        {0},
    };
    check_events(&m, events, "[trainer1]:end\n");
}

/* The bytes of a rank that writes alone are not changed, and memory does not grow with the line. */
static void test_long_binary_line_stays_whole(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    CLEANUP(free_text) char *piece = xmalloc(1 << 16);
    size_t most = 0, total = 0;
    for (size_t i = 0; i < 1 << 16; i++)
        piece[i] = (char)(i % 251 == '\n' ? 0 : i % 251);
    for (int i = 0; i < 1600; i++) { /* 100 MiB */
        output_merge_add(&m, 0, false, piece, 1 << 16, i / 10);
        if (i % 3 == 1)
            merge_add_text(&m, 1, "other\n", i / 10);
        for (size_t k = 0; k < m.targets[0].text.len && total + k < 1600u << 16; k++)
            if (m.targets[0].text.data[k] != piece[(total + k) & 0xffff])
                fail_msg("byte %zu differs", total + k);
        total += m.targets[0].text.len;
        buf_clear(&m.targets[0].text);
        const size_t held = m.streams[0]->waiting.cap + m.streams[1 < m.count]->waiting.cap;
        most = held + m.targets[0].text.cap > most ? held + m.targets[0].text.cap : most;
    }
    assert_int_equal(total, 1600u << 16);
    assert_in_range(most, 1 << 16, 4 << 20);
    output_merge_finish(&m, 160);
    assert_int_equal(m.targets[0].text.len, 1 + 533 * strlen("other\n"));
    assert_int_equal(strncmp(m.targets[0].text.data, "\nother\nother\n", 13), 0);
    output_merge_release(&m);
}

static void test_lines_do_not_wait_without_limit(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    CLEANUP(free_text) char *piece = xcalloc(1, 1 << 20);
    output_merge_add(&m, 0, false, piece, 1 << 20, 0);
    for (int i = 0; i < 1 << 20; i += 1 << 10) {
        assert_int_equal(output_merge_is_held(&m, 1, false, 0), i >= 1 << 19);
        output_merge_add(&m, 1, false, piece, (1 << 10) - 1, 0);
        merge_add_text(&m, 1, "\n", 0);
    }
    assert_int_equal(m.targets[0].text.len, (2 << 20) + 1);
    assert_false(output_merge_is_held(&m, 1, false, 0));
    output_merge_release(&m);
}

static void test_own_lines_stand_alone(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    struct buf lines = {0};
    buf_puts(&lines, "ddpctl: stopping\n");
    m.shared = true;
    merge_add_text(&m, 0, "10%\r", 0);
    output_merge_say(&m, true, &lines);
    merge_check_text(&m.targets[0], "10%\r\nddpctl: stopping\n");
    m.shared = false;
    merge_add_text(&m, 0, "20%\r", 0);
    output_merge_say(&m, true, &lines);
    merge_check_text(&m.targets[0], "20%\r");
    merge_check_text(&m.targets[1], "ddpctl: stopping\n");
    output_merge_add(&m, 0, true, "oh\n", 3, 0);
    merge_check_text(&m.targets[1], "oh\n");
    m.joined = true;
    output_merge_add(&m, 0, true, "oh\n", 3, 0);
    merge_check_text(&m.targets[0], "\noh\n");
    buf_release(&lines);
    output_merge_release(&m);
}

static void test_finished_line_is_ended_by_what_follows(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    merge_add_text(&m, 0, "tail", 0);
    output_merge_finish(&m, 0);
    merge_check_text(&m.targets[0], "tail");
    merge_add_text(&m, 0, "next generation\n", 1);
    merge_check_text(&m.targets[0], "\nnext generation\n");
    output_merge_release(&m);
}

static void test_rank_with_the_terminal_passes_as_it_comes(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    m.targets[0].wanted = m.targets[0].filtered = true;
    output_merge_own(&m, 1);
    const struct event events[] = {
        {0, 1, "(Pdb) ", "(Pdb) "},
        {10, 1, "\033[5n", "\033[5n"},
        {20, 0, "hello\n", ""}, /* waits while somebody may be typing, */
        {30, 1, "p x\n42\n", "p x\n42\n[0] hello\n"},
        {40, 1, "(Pdb) ", "(Pdb) "},
        {200, 0, "hello\n", "\n[0] hello\n"}, /* but not for ever */
        {0},
    };
    check_events(&m, events, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_never_mix_within_a_line),
        cmocka_unit_test(test_dim_errors_are_whole_at_every_cut),
        cmocka_unit_test(test_incomplete_line_passes_after_a_wait),
        cmocka_unit_test(test_text_before_a_carriage_return_passes_at_once),
        cmocka_unit_test(test_every_piece_has_its_label),
        cmocka_unit_test(test_lines_wait_for_a_line_that_grows),
        cmocka_unit_test(test_lines_do_not_wait_for_ever),
        cmocka_unit_test(test_colour_ends_before_text_of_others),
        cmocka_unit_test(test_colour_in_a_pipe),
        cmocka_unit_test(test_raw_passes_bytes),
        cmocka_unit_test(test_label_of_a_stream),
        cmocka_unit_test(test_long_binary_line_stays_whole),
        cmocka_unit_test(test_lines_do_not_wait_without_limit),
        cmocka_unit_test(test_own_lines_stand_alone),
        cmocka_unit_test(test_finished_line_is_ended_by_what_follows),
        cmocka_unit_test(test_rank_with_the_terminal_passes_as_it_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
