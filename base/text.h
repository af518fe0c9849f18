#ifndef DDP_BASE_TEXT_H
#define DDP_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers, times and lists as people read them, in all programs. The functions return a small struct by
 * value, which the caller owns, so that calls can be nested: buf_puts(out, text_bytes(n).text). Texts that do
 * not fit are cut. No state; any thread. */
struct text {
    char text[64];
};

struct text text_count(int64_t n); /* 3,540 */
struct text text_id(int64_t n);    /* 3540: the number of a job, as users type it */
/* 1 node, 3,540 nodes: the plural of the noun ends in "s", and the noun has at most 31 bytes. */
struct text text_counted(int64_t n, const char *noun);
const char *text_plural(int64_t n); /* the ending of a noun: "" for 1, else "s" */
struct text text_short(double n);   /* 812, 3.5k, 21.4k, 12.5M */
struct text text_bytes(int64_t n);  /* 512 B, 3.3 MB, 11.2 GB: powers of 1000 */

struct text text_duration(int64_t ms); /* 38 ms, 0.4 s, 12 s, 2m51s, 3h05m, 2d04h; below 0: 0 ms */
struct text text_age(int64_t ms);      /* 1s, 7m, 3h, 2d: rounded down, for columns */
/* The local time of wall_ms (milliseconds since 1970 UTC): 14:02, with `seconds` 14:02:59. The date comes
 * before it if now_ms is another day: 2026-01-31 14:02. */
struct text text_clock(int64_t wall_ms, int64_t now_ms, bool seconds);

/* What comes before item i of `count`, so that a list reads "a", "a and b", "a, b and c". `last` is the
 * word before the last item with its spaces: " and ". */
const char *text_separator(size_t i, size_t count, const char *last);

#endif
