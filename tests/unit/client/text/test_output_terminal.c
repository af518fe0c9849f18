/* Merged output on a terminal, where unfinished lines are drawn at the bottom and redrawn. */
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

/* ---- a terminal, as far as the drawing uses it: lines scroll off into the history */

enum { ROWS = 12, COLUMNS = 20 };

struct screen {
    char cells[ROWS][COLUMNS + 1];
    size_t row, column;
    struct buf history; /* the lines above the first row */
};

static void screen_line_feed(struct screen *s)
{
    s->column = 0; /* the terminal driver makes \n a \r\n */
    if (s->row + 1 < ROWS) {
        s->row++;
        return;
    }
    buf_puts(&s->history, s->cells[0]);
    buf_putc(&s->history, '\n');
    memmove(s->cells[0], s->cells[1], sizeof(s->cells) - sizeof(s->cells[0]));
    memset(s->cells[ROWS - 1], 0, sizeof(s->cells[0]));
}

static size_t screen_control(struct screen *s, const char *at)
{
    char *end;
    const bool own = at[2] == '?';
    size_t number = strtoul(at + 2 + own, &end, 10);
    number = number ? number : 1;
    if (*end == 'A') {
        assert_in_range(number, 1, s->row); /* never above what is drawn */
        s->row -= number;
    } else if (*end == 'G') {
        s->column = number - 1;
    } else if (*end == 'K' || *end == 'J') {
        memset(s->cells[s->row] + s->column, 0, COLUMNS + 1 - s->column);
        for (size_t row = s->row + 1; *end == 'J' && row < ROWS; row++)
            memset(s->cells[row], 0, sizeof(s->cells[row]));
    } else {
        assert_true(*end == 'm' || (own && number == 7));
    }
    return (size_t)(end - at) + 1;
}

static void screen_show(struct screen *s, struct buf *text)
{
    for (size_t i = 0; i < text->len;) {
        const char c = text->data[i];
        if (c == '\033') {
            i += screen_control(s, text->data + i);
            continue;
        }
        if (c == '\n')
            screen_line_feed(s);
        else if (c == '\r')
            s->column = 0;
        else if (s->column < COLUMNS)
            s->cells[s->row][s->column++] = c;
        i++;
    }
    buf_clear(text);
}

/* The rows that are in use, one text with line ends. */
static void screen_text(const struct screen *s, struct buf *out)
{
    buf_clear(out);
    for (size_t row = 0; row <= s->row; row++) {
        buf_puts(out, s->cells[row]);
        buf_putc(out, '\n');
    }
}

static struct output_merge merge_for_screen(void)
{
    struct output_merge m = merge_for_terminal();
    m.shared = true;
    m.targets[0].filtered = m.targets[0].live = true;
    m.targets[0].columns = COLUMNS;
    m.targets[0].lines = 3;
    return m;
}

struct scene {
    int64_t at_ms;
    int rank;
    const char *text;
    const char *expected; /* the whole screen */
};

static void check_scenes(struct output_merge *m, const struct scene *scenes)
{
    struct screen s = {0};
    struct buf seen = {0};
    for (int64_t draw_ms = 0; scenes->expected; scenes++) {
        if (scenes->text)
            merge_add_text(m, scenes->rank, scenes->text, scenes->at_ms);
        else if (scenes->rank < 0)
            output_merge_finish(m, scenes->at_ms);
        else
            output_merge_tick(m, scenes->at_ms);
        output_merge_draw(m, draw_ms += OUTPUT_MERGE_DRAW_MS); /* each scene is drawn */
        screen_show(&s, &m->targets[0].text);
        screen_text(&s, &seen);
        assert_string_equal(seen.data, scenes->expected);
    }
    buf_release(&seen);
    buf_release(&s.history);
    output_merge_release(m);
}

static void test_terminal_shows_one_line_for_each_bar(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    const struct scene scenes[] = {
        {0, 0, "\r 10%", "\n"},
        {100, 0, NULL, "[0]  10%\n"},
        {110, 1, "hello\n", "[1] hello\n[0]  10%\n"},
        {120, 2, "5%\r", "[1] hello\n[0]  10%\n[2] 5%\n"},
        {130, 0, "\r 20%", "[1] hello\n[0]  20%\n[2] 5%\n"},
        {140, 0, "\r100%\n", "[1] hello\n[0] 100%\n[2] 5%\n"},
        {150, 2, "6%\r", "[1] hello\n[0] 100%\n[2] 6%\n"},
        {160, 2, "   \r", "[1] hello\n[0] 100%\n\n"}, /* an erased bar leaves no line */
        {170, 2, "done\n", "[1] hello\n[0] 100%\n[2] done\n\n"},
        {180, 1, "end\r", "[1] hello\n[0] 100%\n[2] done\n[1] end\n"},
        {190, -1, NULL, "[1] hello\n[0] 100%\n[2] done\n[1] end\n\n"},
        {0},
    };
    check_scenes(&m, scenes);
}

static void test_terminal_shows_the_newest_bars(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    m.targets[0].lines = 1;
    const struct scene scenes[] = {
        {0, 0, "a\r", "[0] a\n"},
        {1, 1, "b\r", "[1] b\n"},
        {2, 2, "line\n", "[2] line\n[1] b\n"},
        {3, 0, "aa\r", "[2] line\n[0] aa\n"},
        {4, 0, "\n", "[2] line\n[0] aa\n[1] b\n"},
        {0},
    };
    check_scenes(&m, scenes);
}

static void test_terminal_shows_several_newest_bars(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    const struct scene scenes[] = {
        {0, 3, "a\r", "[3] a\n"},
        {1, 1, "b\r", "[1] b\n[3] a\n"},
        {2, 4, "c\r", "[1] b\n[3] a\n[4] c\n"},
        {3, 0, "d\r", "[0] d\n[1] b\n[4] c\n"},
        {4, 2, "   \r", "[0] d\n[1] b\n[4] c\n"}, /* a blank line takes no place */
        {5, 3, "e\r", "[0] d\n[3] e\n[4] c\n"},
        {6, 0, "\n", "[0] d\n[1] b\n[3] e\n[4] c\n"},
        {0},
    };
    check_scenes(&m, scenes);
}

/* Lets time pass, draws, and checks whether there is text to write. */
static void check_drawing(struct output_merge *m, int64_t now_ms, bool expected)
{
    output_merge_tick(m, now_ms);
    output_merge_draw(m, now_ms);
    assert_int_equal(m->targets[0].text.len > 0, expected);
    buf_clear(&m->targets[0].text);
}

static void test_terminal_is_drawn_at_intervals(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    CLEANUP(buf_release) struct buf lines = {0};
    merge_add_text(&m, 0, "1%\r", 1000);
    check_drawing(&m, 1000, true);
    assert_false(output_merge_waits(&m));
    merge_add_text(&m, 0, "2%\r", 1001); /* a change, */
    assert_true(output_merge_waits(&m));
    check_drawing(&m, 1049, false);
    merge_add_text(&m, 1, "line\n", 1049); /* and a whole line wait */
    check_drawing(&m, 1049, false);
    check_drawing(&m, 1050, true);
    assert_false(output_merge_waits(&m));
    check_drawing(&m, 2000, false); /* nothing has changed */
    merge_add_text(&m, 0, "3%\r", 2000);
    check_drawing(&m, 2000, true);
    buf_puts(&lines, "ddpctl: stopping\n");
    output_merge_say(&m, true, &lines);
    check_drawing(&m, 2001, true);
    for (int i = 0; i < 8192; i++)
        merge_add_text(&m, 1, "line\n", 2002);
    check_drawing(&m, 2002, true); /* so much text does not wait */
    merge_add_text(&m, 0, "4%\r", 2003);
    check_drawing(&m, 2003, false);
    output_merge_finish(&m, 2003);
    check_drawing(&m, 2003, true);
    assert_false(output_merge_waits(&m));
    output_merge_release(&m);
}

static void test_number_of_drawings(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    size_t drawings = 0;
    for (int i = 0; i < 10000; i++) { /* for a second, ten changes each ms */
        merge_add_text(&m, i % 7, i % 5 ? "#\r" : "line\n", i / 10);
        output_merge_draw(&m, i / 10);
        drawings += m.targets[0].text.len > 0;
        buf_clear(&m.targets[0].text);
    }
    assert_int_equal(drawings, 1000 / OUTPUT_MERGE_DRAW_MS);
    output_merge_release(&m);
}

/* ^Z and fg: the shell's lines below the unfinished lines stay. */
static void test_terminal_moved(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    struct screen s = {0};
    CLEANUP(buf_release) struct buf text = {0};
    merge_add_text(&m, 0, "1%\r", 0);
    merge_add_text(&m, 1, "2%\r", 0);
    output_merge_draw(&m, 0);
    screen_show(&s, &m.targets[0].text);
    buf_puts(&text, "\nstopped\n");
    screen_show(&s, &text);
    output_merge_moved(&m);
    output_merge_draw(&m, 0);
    screen_show(&s, &m.targets[0].text);
    screen_text(&s, &text);
    assert_string_equal(text.data, "[0] 1%\n[1] 2%\nstopped\n[0] 1%\n[1] 2%\n");
    output_merge_release(&m);
}

static void test_terminal_clips_unfinished_lines(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    const struct scene scenes[] = {
        {0, 0, "1%\r", "[0] 1%\n"},
        {1, 1, "0123456789abcdefghij", "[0] 1%\n"},
        {101, 1, NULL, "[0] 1%\n[1] 56789abcdefghij\n"},
        {102, 0, "2%\r", "[0] 2%\n[1] 56789abcdefghij\n"},
        {0},
    };
    check_scenes(&m, scenes);
}

/* Three ranks write lines that are rewritten, in random pieces and at random times. In the end every line is
 * on the screen or in the history, whole and once. */
static void test_terminal_loses_no_line(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct output_merge m = merge_for_screen();
        struct screen s = {0};
        struct buf text[3] = {{0}}, all = {0};
        size_t at[3] = {0}, left = 3;
        int64_t now = 0;
        srand(seed);
        for (int rank = 0; rank < 3; rank++) {
            for (int line = 0; line < 20; line++) {
                buf_puts(&text[rank], line % 3 ? "\r10%\r20%\r" : "");
                buf_printf(&text[rank], "line%d-%d\n", rank, line);
            }
        }
        while (left) {
            const int rank = rand() % 3;
            const size_t rest = text[rank].len - at[rank], take = (size_t)rand() % 12;
            const size_t len = take < rest ? take : rest;
            now += rand() % 40;
            output_merge_add(&m, rank, false, text[rank].data + at[rank], len, now);
            at[rank] += len;
            left -= len && at[rank] == text[rank].len;
            output_merge_draw(&m, now);
            screen_show(&s, &m.targets[0].text);
        }
        output_merge_finish(&m, now);
        output_merge_draw(&m, now);
        screen_show(&s, &m.targets[0].text);
        screen_text(&s, &all);
        buf_append(&s.history, all.data, all.len);
        size_t lines = 0;
        int next[3] = {0};
        for (const char *line = s.history.data; *line && *line != '\n';
             line = strchr(line, '\n') + 1, lines++) {
            int label, rank, number;
            assert_int_equal(sscanf(line, "[%d] line%d-%d\n", &label, &rank, &number), 3);
            assert_int_equal(label, rank);
            assert_int_equal(number, next[rank]++);
        }
        assert_int_equal(lines, 60);
        for (int rank = 0; rank < 3; rank++)
            buf_release(&text[rank]);
        buf_release(&all);
        buf_release(&s.history);
        output_merge_release(&m);
    }
}

static void test_terminal_cuts_a_very_long_line(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    CLEANUP(free_text) char *piece = xmalloc(1 << 16);
    size_t most = 0;
    memset(piece, 'x', 1 << 16);
    for (int i = 0; i < 400; i++) { /* 25 MiB */
        output_merge_add(&m, 0, false, piece, 1 << 16, i);
        output_merge_draw(&m, i);
        buf_clear(&m.targets[0].text);
        most = m.streams[0]->waiting.cap + m.streams[0]->live.text.cap + m.targets[0].text.cap;
    }
    assert_in_range(most, 1 << 20, 16 << 20);
    output_merge_release(&m);
}

/* A line that is read again at each drawing is much shorter than one that is only copied. */
static void test_terminal_cuts_an_unfinished_line_early(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    CLEANUP(free_text) char *piece = xmalloc(64 << 10);
    memset(piece, 'x', 64 << 10);
    output_merge_add(&m, 0, false, piece, (64 << 10) - 1, 0);
    output_merge_tick(&m, 100);
    assert_int_equal(m.streams[0]->live.text.len, (64 << 10) - 1);
    merge_add_text(&m, 0, "y", 101);
    assert_int_equal(m.streams[0]->live.text.len, 0);
    output_merge_draw(&m, 101);
    assert_int_equal(m.targets[0].text.len, strlen("[0] ") + (64 << 10) + 1);
    output_merge_release(&m);
}

static void test_colour_ends_with_its_line(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    merge_add_text(&m, 0, "\033[31mred\n", 0);
    output_merge_draw(&m, 101);
    merge_check_text(&m.targets[0], "[0] \033[31mred\033[0m\n");
    output_merge_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal_shows_one_line_for_each_bar),
        cmocka_unit_test(test_terminal_shows_the_newest_bars),
        cmocka_unit_test(test_terminal_shows_several_newest_bars),
        cmocka_unit_test(test_terminal_is_drawn_at_intervals),
        cmocka_unit_test(test_number_of_drawings),
        cmocka_unit_test(test_terminal_moved),
        cmocka_unit_test(test_terminal_clips_unfinished_lines),
        cmocka_unit_test(test_terminal_loses_no_line),
        cmocka_unit_test(test_terminal_cuts_a_very_long_line),
        cmocka_unit_test(test_terminal_cuts_an_unfinished_line_early),
        cmocka_unit_test(test_colour_ends_with_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
