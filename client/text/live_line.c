#include "client/text/live_line.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/text/columns.h"
#include "client/text/term_filter.h"

#define TAB 8
#define DRAWN_BYTES 4096 /* of the end of a line that does not fit: more than any terminal shows of it */
#define FARTHEST 9999    /* no terminal is wider */

/* Reads a control sequence, a control character or a UTF-8 character, and returns its size in bytes. 0: it is not complete. */
static size_t live_piece_step(struct live_piece *p, const char *at, size_t len)
{
    size_t n = 1;
    if (*at == '\033') {
        n = 2;
        while (n < len && (at[n] < 0x40 || at[n] > 0x7e))
            n++;
        if (n >= len)
            return 0;
        const unsigned long given = strtoul(at + 2, NULL, 10);
        const size_t number = given < FARTHEST ? given : FARTHEST, count = number ? number : 1;
        const char final = at[n++];
        if (final == 'C')
            p->column += count;
        else if (final == 'D')
            p->column -= count < p->column ? count : p->column;
        else if (final == 'G')
            p->column = count - 1;
        else if (final == 'K' && number != 1)
            p->erases = true;
        return n;
    }
    if (*at == '\t') {
        p->column += TAB - p->column % TAB;
    } else if (*at == '\b') {
        p->column -= p->column > 0;
    } else {
        size_t columns;
        if (!columns_are_known(at, len))
            return 0;
        n = columns_of_next(at, len, &columns);
        p->column += columns;
    }
    if (p->column > p->most)
        p->most = p->column;
    return n;
}

static bool live_line_ends_with_return(const struct live_line *line)
{
    return line->text.len && line->text.data[line->text.len - 1] == '\r';
}

/* The bytes of piece i, without the carriage return. */
static size_t live_piece_len(const struct live_line *line, size_t i)
{
    const size_t end = i + 1 < line->count ? line->pieces[i + 1].start - 1
                                           : line->text.len - live_line_ends_with_return(line);
    return end - line->pieces[i].start;
}

/* Removes the pieces that the last one covers. */
static void live_line_settle(struct live_line *line)
{
    struct buf *text = &line->text;
    struct live_piece last = line->pieces[line->count - 1];
    const size_t len = live_piece_len(line, line->count - 1);
    size_t keep = line->count - 1;
    while (keep && (!live_piece_len(line, keep - 1) ||
                    (len && (last.erases || last.most >= line->pieces[keep - 1].most))))
        keep--;
    const size_t removed = last.start - line->pieces[keep].start;
    if (!removed)
        return;
    memmove(text->data + last.start - removed, text->data + last.start, text->len - last.start + 1);
    text->len -= removed;
    line->read -= removed;
    last.start -= removed;
    line->pieces[keep] = last;
    line->count = keep + 1;
}

/* Adds to the last piece, or begins one after a carriage return. A carriage return may end the text. */
static void live_line_extend(struct live_line *line, const char *data, size_t len)
{
    if (!line->count || live_line_ends_with_return(line)) {
        line->pieces = array_grow(line->pieces, line->count, &line->cap, sizeof(*line->pieces));
        line->pieces[line->count++] = (struct live_piece){.start = line->text.len};
        line->read = line->text.len;
    }
    buf_append(&line->text, data, len);
    struct live_piece *last = &line->pieces[line->count - 1];
    const size_t end = last->start + live_piece_len(line, line->count - 1);
    for (size_t n = 1; n && line->read < end; line->read += n, line->steps++)
        n = live_piece_step(last, line->text.data + line->read, end - line->read);
}

void live_line_add(struct live_line *line, const char *data, size_t len)
{
    while (len) {
        const char *end = memchr(data, '\r', len);
        const size_t take = end ? (size_t)(end - data) + 1 : len;
        line->returned = line->returned || end;
        if (end != data || !live_line_ends_with_return(line)) { /* no empty piece between two returns */
            live_line_extend(line, data, take);
            live_line_settle(line);
        }
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

static size_t live_piece_width(const char *piece, size_t len)
{
    struct live_piece read = {0};
    for (size_t i = 0, n = 1; n && i < len; i += n)
        n = live_piece_step(&read, piece + i, len - i);
    return read.most;
}

/* Appends the columns from..to of a piece. Control sequences outside of them are kept, since they may set the
 * colour of what is inside. */
static void live_piece_put(const char *piece, size_t len, size_t from, size_t to, struct buf *out)
{
    struct live_piece read = {0};
    for (size_t i = 0, n = 1; n && i < len; i += n) {
        const size_t column = read.column;
        n = live_piece_step(&read, piece + i, len - i);
        if (piece[i] == '\033' || (column >= from && column < to && read.column <= to))
            buf_append(out, piece + i, n);
    }
}

void live_line_put(const struct live_line *line, const char *label, size_t label_columns, size_t columns,
                   struct buf *out)
{
    const size_t room = columns > label_columns + 1 ? columns - label_columns - 1 : 1;
    bool first = true;
    buf_puts(out, label);
    for (size_t i = 0; i < line->count; i++) {
        const char *piece = line->text.data + line->pieces[i].start;
        size_t len = live_piece_len(line, i), width = columns ? line->pieces[i].most : 0;
        if (columns && !line->returned && len > DRAWN_BYTES) {
            piece += len - DRAWN_BYTES;
            len = DRAWN_BYTES;
            width = live_piece_width(piece, len);
        }
        if (!len)
            continue;
        if (!first) /* the carriage return goes to the column after the label */
            buf_printf(out, "\033[%zuG", label_columns + 1);
        first = false;
        const size_t hidden = width > room && !line->returned ? width - room : 0;
        if (width <= room)
            buf_append(out, piece, len);
        else
            live_piece_put(piece, len, hidden, hidden + room, out);
    }
    if (line->text.len && term_filter_leaves_colour(line->text.data, line->text.len, false))
        buf_puts(out, "\033[0m"); /* the lines of other ranks are not coloured */
}

void live_line_clear(struct live_line *line)
{
    buf_clear(&line->text);
    line->count = line->read = line->steps = 0;
    line->returned = false;
}

void live_line_release(struct live_line *line)
{
    buf_release(&line->text);
    free(line->pieces);
    *line = (struct live_line){0};
}
