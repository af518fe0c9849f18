#ifndef DDP_CLIENT_TOP_TOP_LINES_H
#define DDP_CLIENT_TOP_TOP_LINES_H

#include <stdbool.h>

#include "client/text/term.h"

/* Lines of a screen of a fixed size. */

struct top_frame {
    const struct term *term; /* columns, rows 0: unlimited */
    bool utf8;               /* else curves are drawn in ASCII */
    bool keys;               /* the screen has a selected row and names the keys */
};

/* Appends the first `most` lines of the text, each cut to the terminal's width, and a line end behind the last one. Returns how many
 * lines there were. most 0: all. */
size_t top_put_lines(const struct top_frame *f, const struct buf *text, size_t most, struct buf *out);
/* One line, cut. selected: in reverse, over the whole width. */
void top_put_line(const struct top_frame *f, const char *text, size_t len, bool selected, struct buf *out);

#endif
