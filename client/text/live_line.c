#include "client/text/live_line.h"

#include <stdlib.h>
#include <string.h>

#define TAB 8
#define DRAWN_BYTES 4096 /* of the end of a line that does not fit: more than any terminal shows of it */
#define FARTHEST 9999    /* no terminal is wider */

/* The place of the cursor while a piece is read. */
struct live_cursor {
    size_t column, most; /* most: the columns that the piece takes */
    bool erases;         /* it erases what was to the right of it, so nothing of an older piece is left */
};

/* Reads a control sequence, a control character or a UTF-8 character, and returns its size in bytes. */
static size_t live_cursor_step(struct live_cursor *c, const char *at, size_t len)
{
    size_t n = 1;
    if (*at == '\033' && len > 1) {
        n = 2;
        while (n < len && (at[n] < 0x40 || at[n] > 0x7e))
            n++;
        const unsigned long given = strtoul(at + 2, NULL, 10);
        const size_t number = given < FARTHEST ? given : FARTHEST, count = number ? number : 1;
        const char final = n < len ? at[n++] : 0;
        if (final == 'C')
            c->column += count;
        else if (final == 'D')
            c->column -= count < c->column ? count : c->column;
        else if (final == 'G')
            c->column = count - 1;
        else if (final == 'K' && number != 1)
            c->erases = true;
        return n;
    }
    if (*at == '\t') {
        c->column += TAB - c->column % TAB;
    } else if (*at == '\b') {
        c->column -= c->column > 0;
    } else {
        while (n < len && ((unsigned char)at[n] & 0xC0) == 0x80)
            n++;
        c->column++;
    }
    if (c->column > c->most)
        c->most = c->column;
    return n;
}

static struct live_cursor live_piece_read(const char *piece, size_t len)
{
    struct live_cursor cursor = {0};
    for (size_t i = 0; i < len;)
        i += live_cursor_step(&cursor, piece + i, len - i);
    return cursor;
}

static bool live_piece_covers(const char *piece, size_t len, const char *older, size_t older_len)
{
    const struct live_cursor cursor = live_piece_read(piece, len);
    return !older_len || (len && (cursor.erases || cursor.most >= live_piece_read(older, older_len).most));
}

/* Where the piece begins that ends before `end`. */
static size_t live_piece_start(const struct buf *text, size_t end)
{
    const char *before = end ? memrchr(text->data, '\r', end) : NULL;
    return before ? (size_t)(before - text->data) + 1 : 0;
}

/* Removes the pieces that the last one covers. */
static void live_line_settle(struct buf *text)
{
    for (;;) {
        const size_t end = text->len - (text->len && text->data[text->len - 1] == '\r');
        const size_t last = live_piece_start(text, end);
        if (!last)
            return;
        const size_t older = live_piece_start(text, last - 1);
        if (!live_piece_covers(text->data + last, end - last, text->data + older, last - 1 - older))
            return;
        memmove(text->data + older, text->data + last, text->len - last + 1);
        text->len -= last - older;
    }
}

void live_line_add(struct live_line *line, const char *data, size_t len)
{
    while (len) {
        const char *end = memchr(data, '\r', len);
        const size_t take = end ? (size_t)(end - data) + 1 : len;
        line->returned = line->returned || end;
        buf_append(&line->text, data, take);
        live_line_settle(&line->text);
        data += take;
        len -= take;
    }
}

bool live_line_is_blank(const struct live_line *line)
{
    for (size_t i = 0; i < line->text.len; i++)
        if (!strchr(" \t\r", line->text.data[i]))
            return false;
    return true;
}

/* Appends the columns from..to of a piece. Control sequences outside of them are kept, since they may set the
 * colour of what is inside. */
static void live_piece_put(const char *piece, size_t len, size_t from, size_t to, struct buf *out)
{
    struct live_cursor cursor = {0};
    for (size_t i = 0, n; i < len; i += n) {
        const size_t column = cursor.column;
        n = live_cursor_step(&cursor, piece + i, len - i);
        if (piece[i] == '\033' || (column >= from && column < to))
            buf_append(out, piece + i, n);
    }
}

/* True if the last colour sequence of the line is not a reset. */
static bool live_line_leaves_colour(const struct buf *text)
{
    for (size_t len = text->len; len;) {
        const char *at = memrchr(text->data, '\033', len);
        if (!at)
            return false;
        const size_t parameters = strspn(at + 2, "0123456789;:");
        if (at[2 + parameters] == 'm')
            return parameters > 1 || (parameters == 1 && at[2] != '0');
        len = (size_t)(at - text->data);
    }
    return false;
}

void live_line_put(const struct live_line *line, const char *label, size_t label_columns, size_t columns,
                   struct buf *out)
{
    const size_t room = columns > label_columns + 1 ? columns - label_columns - 1 : 1;
    bool first = true;
    buf_puts(out, label);
    for (size_t at = 0; at < line->text.len;) {
        const char *piece = line->text.data + at, *end = memchr(piece, '\r', line->text.len - at);
        size_t len = end ? (size_t)(end - piece) : line->text.len - at;
        at += len + 1;
        if (columns && !line->returned && len > DRAWN_BYTES) {
            piece += len - DRAWN_BYTES;
            len = DRAWN_BYTES;
        }
        if (!len)
            continue;
        if (!first) /* the carriage return goes to the column after the label */
            buf_printf(out, "\033[%zuG", label_columns + 1);
        first = false;
        const size_t width = columns ? live_piece_read(piece, len).most : 0;
        const size_t hidden = width > room && !line->returned ? width - room : 0;
        if (width <= room)
            buf_append(out, piece, len);
        else
            live_piece_put(piece, len, hidden, hidden + room, out);
    }
    if (live_line_leaves_colour(&line->text))
        buf_puts(out, "\033[0m"); /* the lines of other ranks are not coloured */
}

void live_line_clear(struct live_line *line)
{
    buf_clear(&line->text);
    line->returned = false;
}

void live_line_release(struct live_line *line)
{
    buf_release(&line->text);
}
