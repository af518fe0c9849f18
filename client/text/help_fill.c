#include "client/text/help_fill.h"

#include <string.h>

#include "base/mem.h"

#define HELP_COLUMNS 104      /* no line of a help text is longer */
#define DESCRIPTION_COLUMN 30 /* where the descriptions of options begin */

#define NOT_FILLED (-1)

/* Whether the line goes on with what the line before it has begun. */
static bool help_line_continues(const char *line, int indent)
{
    const int blanks = (int)strspn(line, " ");
    return line[blanks] != '\n' && blanks == indent && (blanks == 0 || blanks == DESCRIPTION_COLUMN);
}

/* The column in which further lines of this paragraph begin. */
static int help_line_indent(const char *line)
{
    const size_t blanks = strspn(line, " ");
    if (strncmp(line, "usage: ", strlen("usage: ")) == 0)
        return (int)strlen("usage: ");
    if (blanks && line[blanks] == '-')
        return DESCRIPTION_COLUMN;
    return blanks || *line == '\n' ? NOT_FILLED : 0;
}

void help_fill(const struct term *t, struct buf *text)
{
    CLEANUP(buf_release) struct buf out = {0};
    int indent = NOT_FILLED;
    size_t start = 0;
    if (!t->live || t->columns >= HELP_COLUMNS || t->columns < 2 * DESCRIPTION_COLUMN)
        return;
    for (const char *at = text->data; at && *at;) {
        const size_t len = strcspn(at, "\n"), blanks = strspn(at, " ");
        if (help_line_continues(at, indent)) {
            out.data[out.len - 1] = ' '; /* in place of the line end */
            buf_append(&out, at + blanks, len - blanks);
        } else {
            if (indent != NOT_FILLED)
                term_wrap(t, &out, start, (size_t)indent);
            start = out.len;
            indent = help_line_indent(at);
            buf_append(&out, at, len);
        }
        buf_putc(&out, '\n');
        at += len + (at[len] == '\n');
    }
    if (indent != NOT_FILLED)
        term_wrap(t, &out, start, (size_t)indent);
    buf_clear(text);
    buf_append(text, out.data, out.len);
}
