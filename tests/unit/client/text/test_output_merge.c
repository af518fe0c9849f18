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

/* What ranks write and when, on a clock of the test's own. A row without text only lets time pass. */
struct event {
    int64_t at_ms;
    int rank;
    const char *text;
    const char *expected; /* all that is written after this row since the one before */
};

static void add_text(struct output_merge *m, int rank, const char *text, int64_t now_ms)
{
    output_merge_add(m, rank, false, text, strlen(text), now_ms);
}

static void check_text(struct output_target *t, const char *expected)
{
    assert_string_equal(t->text.data ? t->text.data : "", expected);
    buf_clear(&t->text);
}

static void check_events(struct output_merge *m, const struct event *events, const char *last)
{
    int64_t now = 0;
    for (; events->expected; events++) {
        now = events->at_ms;
        if (events->text)
            add_text(m, events->rank, events->text, now);
        else
            output_merge_tick(m, now);
        check_text(&m->targets[0], events->expected);
    }
    assert_int_equal(output_merge_waits(m), *last != 0);
    output_merge_finish(m, now);
    assert_false(output_merge_waits(m));
    check_text(&m->targets[0], last);
    output_merge_release(m);
}

static struct output_merge merge_for_terminal(void)
{
    struct output_merge m;
    output_merge_init(&m);
    m.targets[0].wanted = true;
    return m;
}

static struct output_merge merge_for_pipe(void)
{
    struct output_merge m;
    output_merge_init(&m);
    return m;
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
    add_text(&m, 0, ".", 0);
    output_merge_tick(&m, 100);
    add_text(&m, 0, ".", 105);
    check_text(t, "..");
    for (int64_t now = 110; now < 1110; now += 50) {
        if (now == 110)
            add_text(&m, 1, "hello\n", now);
        add_text(&m, 0, ".", now);
        check_text(t, ".");
    }
    add_text(&m, 0, ".", 1110);
    check_text(t, ".\nhello\n");
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
    add_text(&m, 0, "\033[31m10%\r", 0);
    check_text(&m.targets[0], "[0] \033[31m10%\r");
    add_text(&m, 1, "hello\n", 1); /* an inserted line end */
    check_text(&m.targets[0], "\033[0m\n[1] hello\n");
    add_text(&m, 0, "\033[31mred\n", 2);
    add_text(&m, 0, "still red\n", 3);
    check_text(&m.targets[0], "[0] \033[31mred\n[0] still red\n");
    add_text(&m, 1, "hello\n", 4); /* a whole line */
    check_text(&m.targets[0], "\033[0m[1] hello\n");
    add_text(&m, 0, "\033[32m20%\r", 5);
    add_text(&m, 0, "\033[0mplain\r", 6);
    output_merge_say(&m, true, &lines);
    check_text(&m.targets[0], "[0] \033[32m20%\r[0] \033[0mplain\r\nddpctl: stopping\n");
    add_text(&m, 0, "\033[32m30%\r", 7);
    output_merge_say(&m, true, &lines);
    check_text(&m.targets[0], "[0] \033[32m30%\r\033[0m\nddpctl: stopping\n");
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
            add_text(&m, 1, "other\n", i / 10);
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
        add_text(&m, 1, "\n", 0);
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
    add_text(&m, 0, "10%\r", 0);
    output_merge_say(&m, true, &lines);
    check_text(&m.targets[0], "10%\r\nddpctl: stopping\n");
    m.shared = false;
    add_text(&m, 0, "20%\r", 0);
    output_merge_say(&m, true, &lines);
    check_text(&m.targets[0], "20%\r");
    check_text(&m.targets[1], "ddpctl: stopping\n");
    output_merge_add(&m, 0, true, "oh\n", 3, 0);
    check_text(&m.targets[1], "oh\n");
    m.joined = true;
    output_merge_add(&m, 0, true, "oh\n", 3, 0);
    check_text(&m.targets[0], "\noh\n");
    buf_release(&lines);
    output_merge_release(&m);
}

static void test_finished_line_is_ended_by_what_follows(void **state)
{
    (void)state;
    struct output_merge m = merge_for_pipe();
    add_text(&m, 0, "tail", 0);
    output_merge_finish(&m, 0);
    check_text(&m.targets[0], "tail");
    add_text(&m, 0, "next generation\n", 1);
    check_text(&m.targets[0], "\nnext generation\n");
    output_merge_release(&m);
}

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
            add_text(m, scenes->rank, scenes->text, scenes->at_ms);
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
    add_text(&m, 0, "1%\r", 1000);
    check_drawing(&m, 1000, true);
    assert_false(output_merge_waits(&m));
    add_text(&m, 0, "2%\r", 1001); /* a change, */
    assert_true(output_merge_waits(&m));
    check_drawing(&m, 1049, false);
    add_text(&m, 1, "line\n", 1049); /* and a whole line wait */
    check_drawing(&m, 1049, false);
    check_drawing(&m, 1050, true);
    assert_false(output_merge_waits(&m));
    check_drawing(&m, 2000, false); /* nothing has changed */
    add_text(&m, 0, "3%\r", 2000);
    check_drawing(&m, 2000, true);
    buf_puts(&lines, "ddpctl: stopping\n");
    output_merge_say(&m, true, &lines);
    check_drawing(&m, 2001, true);
    for (int i = 0; i < 8192; i++)
        add_text(&m, 1, "line\n", 2002);
    check_drawing(&m, 2002, true); /* so much text does not wait */
    add_text(&m, 0, "4%\r", 2003);
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
        add_text(&m, i % 7, i % 5 ? "#\r" : "line\n", i / 10);
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
    add_text(&m, 0, "1%\r", 0);
    add_text(&m, 1, "2%\r", 0);
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
    for (int i = 0; i < 1600; i++) {
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
    add_text(&m, 0, "y", 101);
    assert_int_equal(m.streams[0]->live.text.len, 0);
    output_merge_draw(&m, 101);
    assert_int_equal(m.targets[0].text.len, strlen("[0] ") + (64 << 10) + 1);
    output_merge_release(&m);
}

static void test_colour_ends_with_its_line(void **state)
{
    (void)state;
    struct output_merge m = merge_for_screen();
    add_text(&m, 0, "\033[31mred\n", 0);
    output_merge_draw(&m, 101);
    check_text(&m.targets[0], "[0] \033[31mred\033[0m\n");
    output_merge_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_never_mix_within_a_line),
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
