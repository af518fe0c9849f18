#include "client/text/term.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "client/text/columns.h"

struct term term_of(int fd)
{
    struct term t = {.now_ms = clock_wall_ms()};
    const char *kind = getenv("TERM");
    const char *plain = getenv("NO_COLOR");
    struct winsize size;
    t.live = isatty(fd) && kind && strcmp(kind, "dumb") != 0;
    t.colour = t.live && !(plain && *plain);
    if (!t.live)
        return t;
    bool known = ioctl(fd, TIOCGWINSZ, &size) == 0;
    t.columns = known && size.ws_col ? size.ws_col : 80;
    t.rows = known ? size.ws_row : 0;
    return t;
}

void term_fit(const struct term *t, const struct buf *text, bool newest, struct buf *out)
{
    const char *line = text->len ? text->data : "";
    size_t lines = 0;
    for (const char *at = line; (at = strchr(at, '\n')); at++)
        lines++;
    const size_t room = t->rows > 2 ? t->rows - 1 : lines;
    const size_t surplus = lines > room ? lines - room : 0;
    for (size_t i = 0; *line; i++) {
        const size_t len = strcspn(line, "\n") + 1;
        const bool left_out = newest ? i >= 1 && i <= surplus : i >= lines - surplus;
        if (!left_out)
            buf_append(out, line, len);
        line += len;
    }
}

enum style style_of_state(const char *state)
{
    static const struct {
        const char *state;
        enum style style;
    } table[] = {
        {"running", STYLE_GOOD},    {"succeeded", STYLE_GOOD}, {"training", STYLE_GOOD},
        {"alive", STYLE_GOOD},      {"queued", STYLE_WAIT},    {"starting", STYLE_WAIT},
        {"recovering", STYLE_WAIT}, {"stopping", STYLE_WAIT},  {"suspect", STYLE_WAIT},
        {"draining", STYLE_WAIT},   {"drained", STYLE_WAIT},   {"joining", STYLE_WAIT},
        {"failed", STYLE_BAD},      {"lost", STYLE_BAD},       {"cancelled", STYLE_DIM},
        {"left", STYLE_DIM},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(state, table[i].state) == 0)
            return table[i].style;
    return STYLE_NONE;
}

void term_puts(const struct term *t, struct buf *out, enum style style, const char *text)
{
    static const char *const codes[] = {"", "\033[32m", "\033[33m", "\033[31m", "\033[2m", "\033[1m"};
    bool dress = t->colour && style != STYLE_NONE && *text;
    if (dress)
        buf_puts(out, codes[style]);
    buf_puts(out, text);
    if (dress)
        buf_puts(out, "\033[0m");
}

/* The number of bytes that follow the first byte of a UTF-8 character; 0 for any other byte. */
static int utf8_bytes_after(unsigned char c)
{
    return c < 0xc2 || c > 0xf4 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
}

void term_puts_safe(struct buf *out, const char *text)
{
    int follow = 0; /* bytes that belong to the character before */
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text, next = (unsigned char)text[1];
        if (c == 0xc2 && next >= 0x80 && next < 0xa0) { /* U+009B begins a sequence as ESC [ does */
            buf_putc(out, '?');
            text++;
            follow = 0;
            continue;
        }
        bool inside = c >= 0x80 && c < 0xc0 && follow > 0;
        follow = inside ? follow - 1 : utf8_bytes_after(c);
        bool control = (c < 0x20 && c != '\t') || c == 0x7f || (c >= 0x80 && c < 0xa0 && !inside);
        buf_putc(out, control ? '?' : *text);
    }
}

void term_printf_safe(struct buf *out, const char *fmt, ...)
{
    CLEANUP(free_text) char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    BUG_ON(vasprintf(&text, fmt, ap) < 0);
    va_end(ap);
    term_puts_safe(out, text);
}

/* The length of a control sequence, or of a character of UTF-8. *columns: what it takes on the screen. */
static size_t term_next_length(const char *at, size_t *columns)
{
    size_t len = 1;
    *columns = *at != '\033';
    if (!*columns) {
        while (at[len] && (at[len] < '@' || at[len] == '['))
            len++;
        return len + (at[len] != 0);
    }
    return columns_of_next(at, strnlen(at, 4), columns);
}

/* The length of the first line of the text, and of the blanks behind it, which a line end replaces. */
static size_t term_line_length(const char *text, size_t columns, size_t *blanks)
{
    size_t len = 0, used = 0, word = 0, width;
    for (; text[len] && text[len] != '\n' && used <= columns; used += width) {
        if (text[len] == ' ' && used)
            word = len;
        len += term_next_length(text + len, &width);
    }
    *blanks = 0;
    if (used <= columns || !word)
        return strcspn(text, "\n");
    *blanks = strspn(text + word, " ");
    return word;
}

void term_wrap(const struct term *t, struct buf *out, size_t from, size_t indent)
{
    if (!t->live || t->columns <= indent + 20 || out->len <= from)
        return;
    CLEANUP(free_text) char *text = xstrdup(out->data + from);
    out->len = from;
    out->data[from] = '\0';
    for (const char *at = text; *at;) {
        size_t room = t->columns, blanks, len;
        while ((len = term_line_length(at, room, &blanks)), blanks) {
            buf_append(out, at, len);
            buf_printf(out, "\n%*s", (int)indent, "");
            at += len + blanks;
            room = t->columns - indent;
        }
        len += at[len] == '\n';
        buf_append(out, at, len);
        at += len;
    }
}
