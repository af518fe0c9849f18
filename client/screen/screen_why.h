#ifndef DDP_CLIENT_SCREEN_SCREEN_WHY_H
#define DDP_CLIENT_SCREEN_SCREEN_WHY_H

#include "client/diagnose/diagnosis.h"
#include "client/text/term.h"

/* `ddpctl why JOB`. */
void screen_why(const Ddp__V1__ProbeJobReply *reply, const struct diagnosis *d, const struct term *term,
                struct buf *out);

#endif
