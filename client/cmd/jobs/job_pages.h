#ifndef DDP_CLIENT_CMD_JOBS_JOB_PAGES_H
#define DDP_CLIENT_CMD_JOBS_JOB_PAGES_H

#include <stdbool.h>

#include "client/link.h"
#include "proto/ddp.pb-c.h"

/* Every job of the coordinator, by number. Zeroed, it is empty. */
struct job_pages {
    Ddp__V1__JobStatus **jobs; /* they belong to the replies */
    size_t count;
    Ddp__V1__ListJobsReply *totals; /* the newest reply */
    void **replies;
    size_t reply_count;
};
/* all: also those that ended long ago. */
MUST_CHECK enum err_code job_pages_fetch(struct link *link, bool all, struct job_pages *out, struct err *e);
/* As above, with a limit for each call. */
MUST_CHECK enum err_code job_pages_fetch_within(struct link *link, bool all, struct job_pages *out,
                                                int64_t limit_ms, struct err *e);
void job_pages_release(struct job_pages *pages);

#endif
