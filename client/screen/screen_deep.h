#ifndef DDP_CLIENT_SCREEN_SCREEN_DEEP_H
#define DDP_CLIENT_SCREEN_SCREEN_DEEP_H

#include "client/diagnose/deep_run.h"
#include "client/text/term.h"

/* `ddpctl check --deep`: each measured GPU and slot beside its peers, then the nodes that were left out, then the findings. */
void screen_deep(const struct deep_result *r, const struct findings *found, const struct term *term,
                 struct buf *out);

#endif
