#ifndef DDP_DAEMON_CAPTURE_LINE_CUT_H
#define DDP_DAEMON_CAPTURE_LINE_CUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Cuts the output of a program into lines, which '\n' or '\r' ends. Only the first LINE_CUT_MOST bytes of a line are kept, whatever its
 * length. Escape sequences of terminals are removed, and other control characters become spaces. Zero-initialise. One thread. */
#define LINE_CUT_MOST (16 << 10)

struct line_cut {
    struct buf line;
    bool in_rest; /* after the bytes that are kept */
};

/* Calls fn with each line that is not empty; it ends with NUL and is borrowed for the call. */
void line_cut_feed(struct line_cut *c, const char *data, size_t len,
                   void (*fn)(void *ctx, char *line, size_t len), void *ctx);
void line_cut_end(struct line_cut *c, void (*fn)(void *ctx, char *line, size_t len), void *ctx);
void line_cut_drop(struct line_cut *c); /* what is kept; up to the next line end nothing is a line */
void line_cut_release(struct line_cut *c);

#endif
