#include "client/cmd/jobs/job_pages.h"

#include <stdlib.h>

#include "base/mem.h"

enum err_code job_pages_fetch(struct link *link, bool all, struct job_pages *out, struct err *e)
{
    return job_pages_fetch_within(link, all, out, LINK_CALL_MS, e);
}

enum err_code job_pages_fetch_within(struct link *link, bool all, struct job_pages *out, int64_t limit_ms,
                                     struct err *e)
{
    Ddp__V1__ListJobsRequest request = DDP__V1__LIST_JOBS_REQUEST__INIT;
    const Ddp__V1__ListJobsReply *page;
    *out = (struct job_pages){0};
    request.all = all;
    request.after = -1; /* from the oldest job on; 0 would mean the newest */
    /* A reply holds a limited number of jobs: page after page, until one is empty. */
    do {
        void *reply = NULL;
        if (link_call_within(link, "ListJobs", &request, &reply, limit_ms, e) != ERR_OK) {
            job_pages_release(out);
            return e->code;
        }
        out->replies = xrealloc(out->replies, (out->reply_count + 1) * sizeof *out->replies);
        out->replies[out->reply_count++] = out->totals = reply;
        page = reply;
        out->jobs = xrealloc(out->jobs, (out->count + page->n_jobs + 1) * sizeof(Ddp__V1__JobStatus *));
        for (size_t i = 0; i < page->n_jobs; i++)
            out->jobs[out->count++] = page->jobs[i];
        if (page->n_jobs)
            request.after = page->jobs[page->n_jobs - 1]->job;
    } while (page->n_jobs);
    return ERR_OK;
}

void job_pages_release(struct job_pages *pages)
{
    for (size_t i = 0; i < pages->reply_count; i++)
        rpc_release(&pages->replies[i]);
    free(pages->replies);
    free(pages->jobs);
    *pages = (struct job_pages){0};
}
