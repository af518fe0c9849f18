#ifndef DDP_CLIENT_SCREEN_FORMAT_H
#define DDP_CLIENT_SCREEN_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* Numbers as people read them. Each returns a small struct by value, so that a call can stand inside another:
 * table_cell(t, fmt_bytes(n).text). */
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
/* The last `cells` (at most 16) values, high to low: lowest value as the lowest block; not finite: a question
 * mark. */
struct fmt fmt_spark(const double *values, size_t count, size_t cells);

/* Columns a UTF-8 text takes on a terminal (every code point counts one; control sequences are not expected).
 */
size_t text_width(const char *text);
/* Bytes of the longest prefix that takes at most `columns`. */
size_t text_clip(const char *text, size_t columns);

#endif
