#ifndef DDP_CLIENT_TEXT_FORMAT_H
#define DDP_CLIENT_TEXT_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* Numbers in the form that people read. Each function returns a small struct by value, so that calls can be
 * nested: table_cell(t, STYLE_NONE, fmt_bytes(n).text). No state; any thread. */
struct fmt {
    char text[64];
};

struct fmt fmt_count(int64_t n);         /* 3,540 */
struct fmt fmt_short(double n);          /* 812, 3.5k, 21.4k, 12.5M */
struct fmt fmt_bytes(int64_t bytes);     /* 512 B, 3.3 MB, 11.2 GB: powers of 1000 */
struct fmt fmt_duration(int64_t ms);     /* 38 ms, 0.4 s, 12.3 s, 2m51s, 3h05m, 2d04h */
struct fmt fmt_age(int64_t ms);          /* 1s, 7m, 3h, 2d: for a column */
struct fmt fmt_metric(double value);     /* four significant digits: 1.412, 0.8914, 4.1e-4, nan */
struct fmt fmt_percent(double fraction); /* 71 % */

/* A progress bar of `cells` characters (at most 20); fraction is clamped to 0..1. */
struct fmt fmt_bar(double fraction, int cells);
/* A sparkline of the last `cells` (at most 16) values: the lowest value is the lowest block. A value that is
 * not finite is a question mark. */
struct fmt fmt_spark(const double *values, size_t count, size_t cells);

/* The columns that a UTF-8 text takes on a terminal. Every code point counts as one; the text has no control
 * sequences. */
size_t text_width(const char *text);
/* The length in bytes of the longest prefix that takes at most `columns` columns. */
size_t text_clip(const char *text, size_t columns);

#endif
