#ifndef DDP_CLIENT_SCREEN_TABLE_H
#define DDP_CLIENT_SCREEN_TABLE_H

#include "client/screen/term.h"

/* Rows under headings, columns as wide as their widest cell, two spaces between. A cell may span several
 * columns: it then widens none but the last of them, and only when nothing else fits. On a terminal it widens
 * no line past the terminal's width, but is cut. Where a terminal is too narrow, columns that can be spared
 * are left out. Trailing blanks are not printed. */
struct table_column {
    const char *heading;
    bool right; /* aligned to the right */
    int spare;  /* 0: always there; else left out on a narrow terminal, the lowest number first */
};

struct table;
struct table *table_new(const struct table_column *columns, size_t count); /* columns is borrowed */
void table_free(struct table *t);
void table_release(struct table **t); /* for CLEANUP */

/* Cells of a row from left to right; the text is copied, "" leaves the cell blank. */
void table_cell(struct table *t, enum style style, const char *text);
void table_span(struct table *t, size_t columns, enum style style, const char *text);
void table_end_row(struct table *t); /* cells not given are blank */

void table_print(const struct table *t, const struct term *term, struct buf *out);

#endif
