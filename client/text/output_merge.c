#include "client/text/output_merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/text/format.h"

#define LINE_MAX_BYTES (1 << 20)   /* a longer line passes in parts, so that memory stays flat */
#define ABOVE_MAX_BYTES (64 << 10) /* so many bytes of whole lines do not wait for a drawing */
#define LIVE_MAX_BYTES                                                                                       \
    (64 << 10) /* the same for an unfinished line on a live terminal, which is read at each drawing */

void output_merge_init(struct output_merge *m)
{
    *m = (struct output_merge){.lines = 1};
}

static struct output_target *merge_target(struct output_merge *m, bool standard_error)
{
    return &m->targets[standard_error && !m->joined && !m->shared];
}

static struct output_stream *merge_stream(struct output_merge *m, int rank, bool standard_error)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->streams[i]->rank == rank && m->streams[i]->standard_error == standard_error)
            return m->streams[i];
    struct output_stream *s = xcalloc(1, sizeof(*s));
    *s = (struct output_stream){
        .rank = rank, .standard_error = standard_error, .own = m->own == rank + 1, .bare = true};
    m->streams = array_grow(m->streams, m->count, &m->cap, sizeof(*m->streams));
    size_t at = m->count++; /* in the order of ranks, which is the order on a live terminal */
    for (; at && m->streams[at - 1]->rank > rank; at--)
        m->streams[at] = m->streams[at - 1];
    m->streams[at] = s;
    return s;
}

void output_merge_own(struct output_merge *m, int rank)
{
    m->own = rank + 1;
    for (size_t i = 0; i < m->count; i++)
        m->streams[i]->own = m->own == m->streams[i]->rank + 1;
}

void output_merge_label(struct output_merge *m, int rank, bool standard_error, const char *label)
{
    struct output_stream *s = merge_stream(m, rank, standard_error);
    free(s->label);
    s->label = xstrdup(label);
}

/* Appends the label and returns the columns that it takes. */
static size_t stream_put_label(const struct output_stream *s, const struct output_target *t, struct buf *out)
{
    static const int colours[] = {36, 33, 32, 35, 34, 31};
    CLEANUP(free_text) char *number = s->label ? NULL : xasprintf("[%d]", s->rank);
    const char *text = s->label ? s->label : number;
    if (!s->label && (!t->wanted || s->own))
        return 0;
    if (t->colour)
        buf_printf(out, "\033[%dm%s\033[0m", colours[(unsigned)s->rank % ARRAY_LEN(colours)], text);
    else
        buf_puts(out, text);
    if (!s->label)
        buf_putc(out, ' ');
    return text_width(text) + !s->label;
}

static bool stream_is_raw(const struct output_stream *s, const struct output_target *t)
{
    return (t->raw || s->own) && !s->label;
}

/* ---- appending */

/* The colour of one stream does not go on in the text of another, or in ddpctl's own lines (NULL). Two raw
 * streams belong to the same rank, which mixes them as it likes. */
static void target_end_colour(struct output_target *t, const struct output_stream *next)
{
    const struct output_stream *s = t->coloured;
    if (!s || s == next || (next && stream_is_raw(s, t) && stream_is_raw(next, t)))
        return;
    buf_puts(&t->text, "\033[0m");
    t->coloured = NULL;
}

/* Ends the unfinished line at the end of the target, so that other text can follow. */
static void target_end_line(struct output_target *t)
{
    struct output_stream *s = t->open;
    if (!s)
        return;
    buf_putc(&t->text, '\n');
    s->cut = s->bare = true;
    s->labelled = false;
    t->open = NULL;
}

/* Copies text of one stream and puts its label at the start of each line, and after each carriage return
 * that text follows. */
static void stream_append_labelled(struct output_stream *s, struct output_target *t, const char *data,
                                   size_t len)
{
    while (len) {
        size_t run = 0;
        while (run < len && data[run] != '\n' && data[run] != '\r')
            run++;
        if (s->bare && (run || (*data == '\n' && !s->labelled))) {
            (void)stream_put_label(s, t, &t->text);
            s->labelled = true;
            s->bare = false;
        }
        if (run < len)
            run++; /* with the \n or \r */
        buf_append(&t->text, data, run);
        if (data[run - 1] == '\n' || data[run - 1] == '\r')
            s->bare = true;
        if (data[run - 1] == '\n')
            s->labelled = false;
        data += run;
        len -= run;
    }
}

static void stream_append(struct output_stream *s, struct output_target *t, const char *data, size_t len)
{
    target_end_colour(t, s);
    if (t->open && t->open != s && !(stream_is_raw(s, t) && stream_is_raw(t->open, t)))
        target_end_line(t);
    if (s->cut && *data == '\n') { /* the inserted line end stands for it */
        data++;
        len--;
    }
    s->cut = false;
    if (!len)
        return;
    if (s->label || (t->wanted && !s->own))
        stream_append_labelled(s, t, data, len);
    else
        buf_append(&t->text, data, len);
    if (t->filtered && !s->own)
        t->coloured = term_filter_leaves_colour(data, len, t->coloured == s) ? s : NULL;
    t->open = data[len - 1] == '\n' ? NULL : s;
    t->returned = data[len - 1] == '\r';
}

/* ---- a live terminal */

/* Prints a line of the stream above the unfinished lines. */
static void stream_print_live(struct output_stream *s, struct output_target *t)
{
    CLEANUP(buf_release) struct buf label = {0};
    const size_t columns = stream_put_label(s, t, &label);
    live_line_put(&s->live, label.len ? label.data : "", columns, 0, &t->above);
    buf_putc(&t->above, '\n');
    live_line_clear(&s->live);
    t->dirty = true;
}

static void stream_add_live(struct output_merge *m, struct output_stream *s, struct output_target *t,
                            const char *data, size_t len)
{
    if (s->cut && *data == '\n') {
        data++;
        len--;
    }
    s->cut = false;
    while (len) {
        const char *end = memchr(data, '\n', len);
        const size_t run = end ? (size_t)(end - data) : len;
        live_line_add(&s->live, data, run);
        s->cut = !end && s->live.text.len >= LIVE_MAX_BYTES;
        if (end || s->cut)
            stream_print_live(s, t);
        data += run + (end != NULL);
        len -= run + (end != NULL);
    }
    s->changed = ++m->changes;
    t->dirty = true;
}

static bool stream_is_unfinished(struct output_merge *m, const struct output_stream *s,
                                 const struct output_target *t)
{
    return merge_target(m, s->standard_error) == t && !live_line_is_blank(&s->live);
}

static int change_compare_newest(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a < b) - (a > b);
}

/* The change since which a line must have changed to be among the `lines` that changed last. */
static int64_t target_oldest_drawn(struct output_merge *m, const struct output_target *t)
{
    int64_t *changes = xcalloc(m->count + 1, sizeof(*changes));
    const size_t lines = t->lines ? t->lines : 1;
    size_t count = 0;
    for (size_t i = 0; i < m->count; i++)
        if (stream_is_unfinished(m, m->streams[i], t))
            changes[count++] = m->streams[i]->changed;
    qsort(changes, count, sizeof(*changes), change_compare_newest);
    const int64_t oldest = count > lines ? changes[lines - 1] : 0;
    free(changes);
    return oldest;
}

/* The cursor stays at the end of the last unfinished line. Each line is overwritten in place and clipped by
 * the terminal itself (autowrap off), which knows the width of every character. */
static void target_draw_live(struct output_merge *m, struct output_target *t)
{
    CLEANUP(buf_release) struct buf lines = {0};
    const int64_t oldest = target_oldest_drawn(m, t);
    size_t count = 0;
    for (size_t i = 0; i < m->count; i++) {
        const struct output_stream *s = m->streams[i];
        if (s->changed < oldest || !stream_is_unfinished(m, s, t))
            continue;
        CLEANUP(buf_release) struct buf label = {0};
        const size_t columns = stream_put_label(s, t, &label);
        buf_puts(&lines, count++ ? "\n" : "\033[?7l");
        live_line_put(&s->live, label.len ? label.data : "", columns, t->columns, &lines);
        buf_puts(&lines, "\033[K");
    }
    if (t->drawn)
        buf_putc(&t->text, '\r');
    if (t->drawn > 1) /* up to the first of them */
        buf_printf(&t->text, "\033[%zuA", t->drawn - 1);
    if (t->drawn && (t->above.len || count < t->drawn))
        buf_puts(&t->text, "\033[J");
    buf_append(&t->text, t->above.data, t->above.len);
    buf_clear(&t->above);
    buf_append(&t->text, lines.data, lines.len);
    if (count)
        buf_puts(&t->text, "\033[?7h");
    t->drawn = count;
    t->dirty = false;
}

static bool target_waits(const struct output_target *t)
{
    return t->live && (t->dirty || t->above.len);
}

void output_merge_draw(struct output_merge *m, int64_t now_ms)
{
    for (size_t i = 0; i < ARRAY_LEN(m->targets); i++) {
        struct output_target *t = &m->targets[i];
        if (!target_waits(t) || (now_ms < t->due_ms && t->above.len < ABOVE_MAX_BYTES))
            continue;
        target_draw_live(m, t);
        t->due_ms = now_ms + OUTPUT_MERGE_DRAW_MS;
    }
}

void output_merge_moved(struct output_merge *m)
{
    for (size_t i = 0; i < ARRAY_LEN(m->targets); i++) {
        m->targets[i].dirty = m->targets[i].dirty || m->targets[i].drawn;
        m->targets[i].drawn = 0;
        m->targets[i].due_ms = 0;
    }
}

/* ---- what passes when */

/* How many of the waiting bytes may pass. */
static size_t stream_ready(const struct output_stream *s, const struct output_target *t, int64_t now_ms)
{
    const struct buf *w = &s->waiting;
    if (stream_is_raw(s, t) || t->open == s || s->live.text.len || w->len >= LINE_MAX_BYTES ||
        now_ms - s->since_ms >= OUTPUT_MERGE_WAIT_MS)
        return w->len;
    const char *newline = memrchr(w->data, '\n', w->len);
    const size_t lines = newline ? (size_t)(newline - w->data) + 1 : 0;
    size_t text = lines; /* the first byte of the unfinished line that is no carriage return */
    while (text < w->len && w->data[text] == '\r')
        text++;
    const char *back = memrchr(w->data + text, '\r', w->len - text);
    return back ? (size_t)(back - w->data) + 1 : lines;
}

/* True while the stream waits for the end of another stream's line. */
static bool stream_is_held(const struct output_stream *s, const struct output_target *t, int64_t now_ms)
{
    const struct output_stream *other = t->open;
    /* the line of a rank with the terminal holds up others while it grows, too */
    if (t->live || !other || other == s || stream_is_raw(s, t) || (!other->own && stream_is_raw(other, t)))
        return false;
    if (t->returned || (other->waiting.len && *other->waiting.data == '\r'))
        return false;
    return now_ms - other->added_ms < OUTPUT_MERGE_WAIT_MS && s->waiting.len < LINE_MAX_BYTES &&
           now_ms - s->since_ms < OUTPUT_MERGE_HOLD_MS;
}

static void stream_pass(struct output_merge *m, struct output_stream *s, size_t len, int64_t now_ms)
{
    struct output_target *t = merge_target(m, s->standard_error);
    if (!len)
        return;
    if (t->live)
        stream_add_live(m, s, t, s->waiting.data, len);
    else
        stream_append(s, t, s->waiting.data, len);
    buf_consume(&s->waiting, len);
    s->since_ms = now_ms;
}

static void stream_tick(struct output_merge *m, struct output_stream *s, int64_t now_ms)
{
    const struct output_target *t = merge_target(m, s->standard_error);
    size_t len = 1;
    /* When text up to a carriage return has passed, what is behind it follows at once. */
    while (len && s->waiting.len && !stream_is_held(s, t, now_ms)) {
        len = stream_ready(s, t, now_ms);
        stream_pass(m, s, len, now_ms);
    }
}

static void stream_tick_others(struct output_merge *m, const struct output_stream *s, int64_t now_ms)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->streams[i] != s)
            stream_tick(m, m->streams[i], now_ms);
}

void output_merge_tick(struct output_merge *m, int64_t now_ms)
{
    stream_tick_others(m, NULL, now_ms);
}

static int64_t merge_count_lines(const char *data, size_t len)
{
    int64_t lines = 0;
    size_t i = 0;
    /* Blocks of a fixed length, which compilers vectorize: a loop over single bytes took half of the time that
     * ddpctl needs for output. */
    for (; i + 64 <= len; i += 64) {
        uint8_t block = 0;
        for (size_t k = 0; k < 64; k++)
            block += data[i + k] == '\n';
        lines += block;
    }
    for (; i < len; i++)
        lines += data[i] == '\n';
    return lines;
}

int64_t output_merge_lines_since(const struct output_merge *m, int rank, bool standard_error)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->streams[i]->rank == rank && m->streams[i]->standard_error == standard_error &&
            m->streams[i]->lines)
            return m->lines - m->streams[i]->lines;
    return -1;
}

/* Dim text, each line by itself, so that a colour of the program's own ends it for its line only. The text has passed the filter:
 * a chunk may end within a character or a control sequence, which the filter holds back. */
static void stream_put_dim(struct output_stream *s, const struct buf *text)
{
    const char *at = text->data, *end = at + text->len;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t run = stop ? (size_t)(stop - at) : (size_t)(end - at);
        buf_puts(&s->waiting, "\033[2m");
        buf_append(&s->waiting, at, run);
        buf_puts(&s->waiting, stop ? "\033[0m\n" : "\033[0m");
        at += run + (stop != NULL);
    }
}

static void stream_filter(struct output_stream *s, const struct output_target *t, const char *data,
                          size_t len)
{
    CLEANUP(buf_release) struct buf text = {0};
    if (!s->standard_error || !t->dims_errors) {
        term_filter_add(&s->filter, data, len, &s->waiting);
        return;
    }
    term_filter_add(&s->filter, data, len, &text);
    if (text.len)
        stream_put_dim(s, &text);
}

void output_merge_add(struct output_merge *m, int rank, bool standard_error, const char *data, size_t len,
                      int64_t now_ms)
{
    struct output_stream *s = merge_stream(m, rank, standard_error);
    if (!s->waiting.len)
        s->since_ms = now_ms;
    s->added_ms = now_ms;
    s->lines = m->lines += merge_count_lines(data, len);
    if (merge_target(m, standard_error)->filtered && !s->own)
        stream_filter(s, merge_target(m, standard_error), data, len);
    else
        buf_append(&s->waiting, data, len);
    if (s->waiting.len && *s->waiting.data == '\r') /* other lines pass before a line is rewritten, */
        stream_tick_others(m, s, now_ms);
    stream_tick(m, s, now_ms);
    stream_tick_others(m, s, now_ms); /* and when it has ended */
}

bool output_merge_is_held(struct output_merge *m, int rank, bool standard_error, int64_t now_ms)
{
    const struct output_stream *s = merge_stream(m, rank, standard_error);
    return s->waiting.len >= LINE_MAX_BYTES / 2 && stream_is_held(s, merge_target(m, standard_error), now_ms);
}

bool output_merge_waits(const struct output_merge *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->streams[i]->waiting.len)
            return true;
    return target_waits(&m->targets[0]) || target_waits(&m->targets[1]);
}

void output_merge_say(struct output_merge *m, bool standard_error, const struct buf *lines)
{
    struct output_target *t = &m->targets[standard_error && !m->shared];
    if (!lines->len)
        return;
    target_end_colour(t, NULL);
    target_end_line(t);
    buf_append(t->live ? &t->above : &t->text, lines->data, lines->len);
    t->due_ms = 0;
}

/* ---- the end */

static void stream_finish(struct output_merge *m, struct output_stream *s, int64_t now_ms)
{
    struct output_target *t = merge_target(m, s->standard_error);
    CLEANUP(buf_release) struct buf rest = {0};
    term_filter_finish(&s->filter, &rest); /* a cut character, and the reset of a colour */
    if (s->waiting.len || t->open == s || stream_is_raw(s, t))
        buf_append(&s->waiting, rest.data, rest.len);
    else if (!t->live && !t->open)
        buf_append(&t->text, rest.data, rest.len);
    stream_pass(m, s, s->waiting.len, now_ms);
    if (!live_line_is_blank(&s->live))
        stream_print_live(s, t);
    live_line_clear(&s->live);
    if (t->open == s && (s->label || t->wanted))
        target_end_line(t);
    else if (t->open == s) /* the line is ended if anything follows */
        t->open = &m->past;
    m->past.added_ms = now_ms - OUTPUT_MERGE_WAIT_MS; /* nothing waits for its end */
    s->cut = false;
    s->bare = true;
    s->labelled = false;
}

void output_merge_finish(struct output_merge *m, int64_t now_ms)
{
    for (size_t i = 0; i < ARRAY_LEN(m->targets); i++)
        if (m->targets[i].open && m->targets[i].open != &m->past)
            stream_finish(m, m->targets[i].open, now_ms); /* before the lines that wait for its end */
    for (size_t i = 0; i < m->count; i++)
        stream_finish(m, m->streams[i], now_ms);
    for (size_t i = 0; i < ARRAY_LEN(m->targets); i++)
        m->targets[i].due_ms = 0; /* the caller may not draw again */
}

void output_merge_release(struct output_merge *m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->streams[i]->label);
        buf_release(&m->streams[i]->waiting);
        live_line_release(&m->streams[i]->live);
        free(m->streams[i]);
    }
    free(m->streams);
    for (size_t i = 0; i < ARRAY_LEN(m->targets); i++) {
        buf_release(&m->targets[i].text);
        buf_release(&m->targets[i].above);
    }
    *m = (struct output_merge){0};
}
