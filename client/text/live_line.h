#ifndef DDP_CLIENT_TEXT_LIVE_LINE_H
#define DDP_CLIENT_TEXT_LIVE_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* The text from the start of the line or a carriage return to the next one. */
struct live_piece {
    size_t start;        /* in the text of the line */
    size_t column, most; /* the column of the cursor behind it, and the columns that it takes */
    bool erases;         /* it erases what was to the right of it, so nothing of an older piece is left */
};

/* A line that has not ended yet, as a terminal shows it: after a carriage return, new text covers the old text
 * from the start of the line. Text that is completely covered is forgotten, so a progress bar takes the memory
 * of its last state. The text has passed a term_filter. {0} is an empty line. One thread. */
struct live_line {
    struct buf text; /* pieces separated by \r, each narrower than the one before it */
    struct live_piece *pieces;
    size_t count, cap;
    size_t read;   /* the last piece has been read up to here; each byte is read once */
    size_t steps;  /* characters and control sequences that were read, for tests of that */
    bool returned; /* there was a carriage return */
};

void live_line_add(struct live_line *line, const char *data, size_t len);
bool live_line_is_blank(const struct live_line *line);
/* Appends the label, which takes label_columns, and the line. columns: the width of the terminal; a line that
 * is too long is clipped, at its start if it only grows, at its end if it is rewritten. 0: the whole line. */
void live_line_put(const struct live_line *line, const char *label, size_t label_columns, size_t columns,
                   struct buf *out);
void live_line_clear(struct live_line *line);
void live_line_release(struct live_line *line);

#endif
