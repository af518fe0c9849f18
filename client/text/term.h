#ifndef DDP_CLIENT_TEXT_TERM_H
#define DDP_CLIENT_TEXT_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What the output can show: colour, bars and redrawing on a terminal; plain text with the same columns in a
 * pipe. */
struct term {
    bool live;      /* a terminal: bars, sparklines, redrawing */
    bool colour;    /* live, and NO_COLOR is unset */
    size_t columns; /* 0: unlimited */
    size_t rows;    /* likewise */
    int64_t now_ms; /* wall time, from which ages are computed */
};

struct term term_of(int fd);

enum style { STYLE_NONE, STYLE_GOOD, STYLE_WAIT, STYLE_BAD, STYLE_DIM, STYLE_BOLD };
enum style style_of_state(const char *state); /* of a job, node or rank */
void term_puts(const struct term *t, struct buf *out, enum style style, const char *text);

/* On a terminal, breaks each line of `out` from offset `from` on between words where it is too long, and puts `indent`
 * blanks before what follows. */
void term_wrap(const struct term *t, struct buf *out, size_t from, size_t indent);

/* Appends as many lines of the text as the terminal has room for above the cursor's line: the first lines, or
 * with `newest` the heading and the last lines. */
void term_fit(const struct term *t, const struct buf *text, bool newest, struct buf *out);

/* Appends text of unknown origin. Replaces control characters (and so escape sequences), direction marks, separators of lines
 * and invalid UTF-8 by '?'. Keeps tabs. */
void term_puts_safe(struct buf *out, const char *text);
void term_printf_safe(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
