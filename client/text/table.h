#ifndef DDP_CLIENT_TEXT_TABLE_H
#define DDP_CLIENT_TEXT_TABLE_H

#include "client/text/term.h"

/* A table: rows under headings, columns as wide as their widest cell, two spaces between columns, no trailing
 * blanks.
 *
 * A cell may span several columns. If its text is wider than these, the last of them is widened, but no line
 * is made wider than the terminal: the text is cut instead. On a terminal that is too narrow, columns with a
 * `spare` number are left out. */
struct table_column {
    const char *heading;
    bool right; /* aligned to the right */
    int spare; /* 0: always shown; otherwise left out on a narrow terminal, the lowest number first. From TABLE_LATE on:
                      only if a wrapped column would get less than its least width, and columns with `most` are narrow already */
    size_t most;   /* on a terminal the cells are cut to this width, or a smaller one; 0: they are not */
    bool optional; /* left out if all its cells are blank */
    bool wrap;     /* of the last column: on a terminal the text goes on in further lines, below itself */
};

#define TABLE_LATE 100

struct table;
struct table *table_new(const struct table_column *columns, size_t count); /* columns is borrowed */
void table_free(struct table *t);
void table_release(struct table **t); /* for CLEANUP */

/* Cells of a row from left to right; the text is copied, "" leaves the cell blank. */
void table_cell(struct table *t, enum style style, const char *text);
void table_span(struct table *t, size_t columns, enum style style, const char *text);
void table_end_row(struct table *t); /* cells not given are blank */

/* Returns the number of columns that were left out because the terminal is narrow. */
size_t table_print(const struct table *t, const struct term *term, struct buf *out);

#endif
