#ifndef DDP_CLIENT_SCREEN_PLOT_H
#define DDP_CLIENT_SCREEN_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "client/screen/series.h"

/* Curves over steps on a terminal: one set of axes for all of them. One curve, or several in colour, are
 * drawn in braille dots (2 x 4 a character); several without colour with a mark each; without UTF-8 in ASCII.
 */

struct plot_curve {
    char *label; /* "#9 loss" */
    struct series points;
};
struct plot {
    size_t columns, rows; /* of the whole; rows without the legend. At least 30 x 5 */
    bool utf8, colour;
};
/* Values that are not finite, or beyond 1e300, are gaps. */
void plot_draw(const struct plot *p, const struct plot_curve *curves, size_t count, struct buf *out);

#endif
