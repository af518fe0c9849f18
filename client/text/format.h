#ifndef DDP_CLIENT_TEXT_FORMAT_H
#define DDP_CLIENT_TEXT_FORMAT_H

#include <stddef.h>

#include "base/buf.h"
#include "base/text.h"

/* Numbers and pictures for the terminal, next to those of base/text.h. No state; any thread. */

struct text fmt_metric(double value);     /* four significant digits: 1.412, 0.8914, 4.1e-4, nan */
struct text fmt_percent(double fraction); /* 71 % */

/* A progress bar of `cells` characters (at most 20); fraction is clamped to 0..1. */
struct text fmt_bar(double fraction, int cells);
/* A sparkline of the last `cells` (at most 16) values: the lowest value is the lowest block. A value that is
 * not finite is a question mark. */
struct text fmt_spark(const double *values, size_t count, size_t cells);

/* The columns that a UTF-8 text without control sequences takes on a terminal (client/text/columns.h). */
size_t text_width(const char *text);
/* The length in bytes of the longest prefix that takes at most `columns` columns. */
size_t text_clip(const char *text, size_t columns);

/* Replaces each character that is not ASCII by one that is: bars by # and -, arrows by >, unknown ones by ?. Columns stay. */
void text_fold_ascii(struct buf *text);

#endif
