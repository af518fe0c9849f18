#ifndef DDP_CLIENT_TEXT_PLOT_H
#define DDP_CLIENT_TEXT_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "client/text/series.h"

/* Draws curves over steps as text, with one set of axes for all curves. A single curve, or several in colour,
 * are drawn with braille dots (2 x 4 for each character). Several curves without colour have a mark each.
 * Without UTF-8 the plot is ASCII. No input or output. */

struct plot_curve {
    char *label; /* "#9 loss" */
    struct series points;
};
struct plot {
    size_t columns, rows; /* size of the plot, at least 30 x 5; the legend is below it */
    bool utf8, colour;
};
/* Values that are not finite, or beyond 1e300, are gaps. */
void plot_draw(const struct plot *p, const struct plot_curve *curves, size_t count, struct buf *out);

#endif
