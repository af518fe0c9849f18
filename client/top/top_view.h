#ifndef DDP_CLIENT_TOP_TOP_VIEW_H
#define DDP_CLIENT_TOP_TOP_VIEW_H

#include "client/top/top_lines.h"
#include "client/top/top_state.h"

/* Draws the screens of `ddpctl top` from the model (what is known) and the state (what the user has chosen). Has no clock and
 * does no input or output.
 *
 *   jobs   a line of totals, the nodes (a fifth of the screen), the jobs
 *   nodes  all nodes
 *   job    status and ranks, why, a curve, the last lines of the log (top_job_view.h)
 *
 * The last line lists the keys, or asks the user a question. A screen never has more rows or wider lines than the terminal. */
void top_draw(const struct top_frame *f, const struct top_model *m, const struct top_state *s,
              struct buf *out);
/* The number of rows that the list of jobs, or of nodes, has on the screen: the `room` of top_settle. */
size_t top_room(const struct top_frame *f, const struct top_model *m, const struct top_state *s);

#endif
