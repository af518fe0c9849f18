#ifndef DDP_CLIENT_SCREEN_SCREEN_JOB_H
#define DDP_CLIENT_SCREEN_SCREEN_JOB_H

#include "client/text/term.h"
#include "proto/ddp.pb-c.h"

/* `ddpctl status JOB`. probe: as for screen_failure. */
void screen_job(const Ddp__V1__JobStatus *job, const Ddp__V1__ProbeJobReply *probe, const struct term *term,
                struct buf *out);

#endif
