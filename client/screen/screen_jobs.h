#ifndef DDP_CLIENT_SCREEN_SCREEN_JOBS_H
#define DDP_CLIENT_SCREEN_SCREEN_JOBS_H

#include "client/text/term.h"
#include "proto/ddp.pb-c.h"

/* `ddpctl status`: the jobs that run, the queue and the last ones that ended, and the totals of the cluster. chosen: the
 * user has said which jobs to list, so none of them is left out. */
void screen_jobs(const Ddp__V1__ListJobsReply *reply, bool chosen, const struct term *term, struct buf *out);

#endif
