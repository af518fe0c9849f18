#ifndef DDP_CLIENT_SCREEN_SCREEN_CHECK_H
#define DDP_CLIENT_SCREEN_SCREEN_CHECK_H

#include "client/diagnose/preflight.h"
#include "client/text/term.h"

/* `ddpctl check`. */
void screen_check(const struct preflight *f, const struct findings *found, const struct term *term,
                  struct buf *out);
/* The problems with their remedies, and their number. */
void screen_findings(const struct findings *found, const struct term *term, struct buf *out);

#endif
