#ifndef DDP_CLIENT_JOB_WATCH_H
#define DDP_CLIENT_JOB_WATCH_H

#include "client/connect.h"

/* The states of one job as the coordinator sends them (the RPC WatchJob), across restarts of the coordinator.
 */
struct job_watch {
    struct link *link; /* borrowed */
    int64_t job;
    struct rpc_stream *stream;     /* NULL: not open */
    int64_t retry_at_ms, retry_ms; /* after the stream broke: when it is opened again, and the last pause */
};

void job_watch_open(struct job_watch *w, struct link *link, int64_t job);
void job_watch_close(struct job_watch *w);
/* Waits at most wait_ms for the job's next state. ERR_OK: *job is it (rpc_free), or NULL if there is none
 * yet. UNAVAILABLE: the coordinator does not answer; call again, and the stream is opened again after pauses
 * that grow from 0.1 to 1 s. Any other code is final. */
MUST_CHECK enum err_code job_watch_next(struct job_watch *w, int64_t wait_ms, Ddp__V1__JobStatus **job,
                                        struct err *e);

#endif
