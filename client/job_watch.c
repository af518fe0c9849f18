#include "client/job_watch.h"

#include <string.h>

#include "base/clock.h"

void job_watch_open(struct job_watch *w, struct link *link, int64_t job)
{
    *w = (struct job_watch){.link = link, .job = job};
}

void job_watch_close(struct job_watch *w)
{
    rpc_stream_close(w->stream);
    w->stream = NULL;
}

static enum err_code job_watch_start(struct job_watch *w, struct err *e)
{
    Ddp__V1__WatchJobRequest request = DDP__V1__WATCH_JOB_REQUEST__INIT;
    request.job = w->job;
    if (link_check_owner(w->link, e) != ERR_OK)
        return e->code;
    return rpc_stream_open(&w->stream, w->link->channel, &ddp__v1__cluster__descriptor, "WatchJob", &request,
                           0, 0, e);
}

static enum err_code job_watch_broke(struct job_watch *w, struct err *e)
{
    job_watch_close(w);
    if (e->code != ERR_UNAVAILABLE && e->code != ERR_OK) /* such as NOT_FOUND: trying again will not help */
        return link_explain(w->link, e);
    w->retry_ms = w->retry_ms ? w->retry_ms * 2 : 100;
    if (w->retry_ms > 1000)
        w->retry_ms = 1000;
    w->retry_at_ms = clock_boot_ms() + w->retry_ms;
    if (e->code == ERR_OK)
        return err_set(e, ERR_UNAVAILABLE, "the coordinator ended the stream");
    return link_explain(w->link, e);
}

enum err_code job_watch_next(struct job_watch *w, int64_t wait_ms, Ddp__V1__JobStatus **job, struct err *e)
{
    void *message = NULL;
    *job = NULL;
    if (!w->stream) {
        int64_t pause = w->retry_at_ms - clock_boot_ms();
        if (w->retry_at_ms && pause > 0) {
            link_sleep(w->link, pause < wait_ms ? pause : wait_ms);
            if (pause > wait_ms)
                return err_set(e, ERR_UNAVAILABLE, "the coordinator does not answer");
        }
        if (job_watch_start(w, e) != ERR_OK)
            return job_watch_broke(w, e);
    }
    enum err_code code = rpc_stream_next(w->stream, wait_ms, &message, e);
    if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(w->stream))
        /* retry_at_ms is set until the stream that was opened again has brought a first state */
        return w->retry_at_ms ? err_set(e, ERR_UNAVAILABLE, "the coordinator does not answer") : ERR_OK;
    if (code != ERR_OK)
        return job_watch_broke(w, e);
    if (!message) { /* the coordinator ended the stream without an error, as when it stops */
        *e = (struct err){0};
        return job_watch_broke(w, e);
    }
    w->retry_ms = w->retry_at_ms = 0;
    *job = message;
    return ERR_OK;
}
