#include "client/top/top_lines.h"

#include <string.h>

#include "client/text/columns.h"

#define REVERSE "\033[7m"
#define PLAIN "\033[0m"

/* The length of a colour sequence, with which term_puts begins a piece of text or ends it. */
static size_t top_colour_length(const char *at, size_t len)
{
    size_t n = 2;

    while (n < len && at[n] != 'm')
        n++;
    return n < len ? n + 1 : len;
}

void top_put_line(const struct top_frame *f, const char *text, size_t len, bool selected, struct buf *out)
{
    const size_t most = f->term->columns;
    size_t at = 0, used = 0, width;
    bool dressed = false;

    if (selected)
        buf_puts(out, REVERSE);
    while (at < len) {
        if (text[at] == '\033') {
            const size_t n = top_colour_length(text + at, len - at);
            if (!selected) /* the end of a colour would end the reverse, too */
                buf_append(out, text + at, n);
            dressed = !selected;
            at += n;
            continue;
        }
        const size_t n = columns_of_next(text + at, len - at, &width);
        if (most && used + width > most)
            break;
        buf_append(out, text + at, n);
        used += width;
        at += n;
    }
    for (; selected && used < most; used++)
        buf_putc(out, ' ');
    if (selected || (dressed && at < len))
        buf_puts(out, PLAIN);
    buf_putc(out, '\n');
}

size_t top_put_lines(const struct top_frame *f, const struct buf *text, size_t most, struct buf *out)
{
    const char *at = text->len ? text->data : "";
    size_t lines = 0;

    for (; *at && (!most || lines < most); lines++) {
        const size_t len = strcspn(at, "\n");
        top_put_line(f, at, len, false, out);
        at += len + (at[len] == '\n');
    }
    return lines;
}
