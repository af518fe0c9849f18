#ifndef DDP_CLIENT_SCREEN_SCREEN_JOBS_H
#define DDP_CLIENT_SCREEN_SCREEN_JOBS_H

#include "client/text/term.h"
#include "proto/ddp.pb-c.h"

/* `ddpctl status`: the list of jobs and the totals of the cluster. */
void screen_jobs(const Ddp__V1__ListJobsReply *reply, const struct term *term, struct buf *out);

#endif
