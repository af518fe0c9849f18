#ifndef DDP_CLIENT_SCREEN_TERM_H
#define DDP_CLIENT_SCREEN_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What an output can show: colour, bars and redrawing on a terminal; plain text in a pipe, with the same
 * columns. */
struct term {
    bool live;      /* a terminal: bars, sparklines, redrawing */
    bool colour;    /* live, and NO_COLOR is unset */
    size_t columns; /* 0: unlimited */
    size_t rows;    /* likewise */
    int64_t now_ms; /* wall time that ages are counted from */
};

struct term term_of(int fd);

enum style { STYLE_NONE, STYLE_GOOD, STYLE_WAIT, STYLE_BAD, STYLE_DIM, STYLE_BOLD };
enum style style_of_state(const char *state); /* a job's, node's or rank's */
void term_puts(const struct term *t, struct buf *out, enum style style, const char *text);

/* As many of the text's lines as the terminal has above the cursor's: the first ones, or where the newest
 * matter its heading and the last ones. */
void term_fit(const struct term *t, const struct buf *text, bool newest, struct buf *out);

/* Appends text with control characters (a worker's escape sequences included) shown as '?'; tabs are kept. */
void term_puts_safe(struct buf *out, const char *text);
void term_printf_safe(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
