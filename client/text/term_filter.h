#ifndef DDP_CLIENT_TEXT_TERM_FILTER_H
#define DDP_CLIENT_TEXT_TERM_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Filters a job's output for a terminal. Text, newlines, colour (CSI ... m) and movement within the line
 * (carriage return, backspace, tab, CSI C, D, G and K) pass. All other control sequences are removed: titles
 * and the clipboard (OSC), device strings (DCS, APC, PM, SOS), other CSI sequences, character sets, C1
 * controls (as one byte and as UTF-8), bells. A sequence may be split between two chunks at any byte. Each
 * stream has its own filter; {0} is a new one. */
struct term_filter {
    unsigned char held[64]; /* an unfinished sequence or UTF-8 character */
    size_t held_size;
    int state;
    bool coloured; /* the last colour sequence that passed was not a reset */
};

void term_filter_add(struct term_filter *f, const char *data, size_t len, struct buf *out);
/* At the end of the stream: drops an unfinished sequence and resets the terminal's colours. */
void term_filter_finish(struct term_filter *f, struct buf *out);
/* Whether text that has passed a filter leaves the terminal coloured: by its last colour sequence. If it has
 * none, returns `before`. */
bool term_filter_leaves_colour(const char *text, size_t len, bool before);

#endif
