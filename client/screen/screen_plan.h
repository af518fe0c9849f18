#ifndef DDP_CLIENT_SCREEN_SCREEN_PLAN_H
#define DDP_CLIENT_SCREEN_SCREEN_PLAN_H

#include "client/plan/plan_ways.h"
#include "client/text/term.h"

/* `ddpctl plan`: a table by strategy, and the same as JSON, whose keys are in docs/explanation/plan.md. */
void screen_plan(const struct plan *p, const struct term *term, struct buf *out);
void screen_plan_json(const struct plan *p, struct buf *out);

#endif
