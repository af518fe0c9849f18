#include "client/text/help_fill.h"

#include <string.h>

#include "base/mem.h"

#define HELP_COLUMNS 104      /* no line of a help text is longer */
#define DESCRIPTION_COLUMN 30 /* where the descriptions of options begin */

/* Whether the line goes on with what the line before it has begun. */
static bool help_line_continues(const char *line, bool after_text, bool after_option)
{
    const size_t blanks = strspn(line, " ");
    return line[blanks] != '\n' &&
           ((after_text && !blanks) || (after_option && blanks == DESCRIPTION_COLUMN));
}

void help_fill(const struct term *t, struct buf *text)
{
    CLEANUP(buf_release) struct buf out = {0};
    bool after_text = false, after_option = false;
    size_t start = 0;
    if (!t->live || t->columns >= HELP_COLUMNS || t->columns < 2 * DESCRIPTION_COLUMN)
        return;
    for (const char *at = text->data; at && *at;) {
        const size_t len = strcspn(at, "\n"), blanks = strspn(at, " ");
        if (help_line_continues(at, after_text, after_option)) {
            out.data[out.len - 1] = ' '; /* in place of the line end */
            buf_append(&out, at + blanks, len - blanks);
        } else {
            if (after_text || after_option)
                term_wrap(t, &out, start, after_option ? DESCRIPTION_COLUMN : 0);
            start = out.len;
            after_text = len && !blanks && strncmp(at, "usage: ", strlen("usage: ")) != 0;
            after_option = blanks && at[blanks] == '-';
            buf_append(&out, at, len);
        }
        buf_putc(&out, '\n');
        at += len + (at[len] == '\n');
    }
    if (after_text || after_option)
        term_wrap(t, &out, start, after_option ? DESCRIPTION_COLUMN : 0);
    buf_clear(text);
    buf_append(text, out.data, out.len);
}
