#include "client/text/term.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
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

/* The code point of a valid UTF-8 character of two to four bytes. */
static uint32_t utf8_decode(const char *text, size_t len)
{
    uint32_t code = (unsigned char)*text & (0x7fu >> len);
    for (size_t i = 1; i < len; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    return code;
}

/* Invisible characters that change how a terminal shows the text around them: C1 controls (U+009B begins an escape sequence,
 * as ESC [ does), direction marks, and separators of lines and paragraphs. */
static bool code_is_unsafe(uint32_t code)
{
    return (code >= 0x80 && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void term_puts_safe(struct buf *out, const char *text)
{
    for (size_t len; *text; text += len) {
        const unsigned char c = (unsigned char)*text;
        len = json_char_length(text);
        const bool bad =
            len <= 1 ? !len || (c < 0x20 && c != '\t') || c == 0x7f : code_is_unsafe(utf8_decode(text, len));
        len += !len; /* invalid UTF-8: one '?' for each byte */
        if (bad)
            buf_putc(out, '?');
        else
            buf_append(out, text, len);
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
