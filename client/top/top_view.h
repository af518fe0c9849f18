#ifndef DDP_CLIENT_TOP_TOP_VIEW_H
#define DDP_CLIENT_TOP_TOP_VIEW_H

#include "client/top/top_lines.h"
#include "client/top/top_state.h"

/* The screens of `ddpctl top`, as a function of what is known and what the user has chosen: no clock, no input or output.
 *
 *   jobs   a line of totals, the nodes (a fifth of the screen), the jobs
 *   nodes  all nodes
 *   job    status and ranks, why, a curve, the last lines of the log (top_job_view.h)
 *
 * The last line names the keys, or asks. A screen has at most the rows of the terminal, and no line is wider than it. */
void top_draw(const struct top_frame *f, const struct top_model *m, const struct top_state *s,
              struct buf *out);
/* Rows for the list of jobs, or of nodes, for top_settle. */
size_t top_room(const struct top_frame *f, const struct top_model *m, const struct top_state *s);

#endif
