#ifndef DDP_CLIENT_WEB_WEB_WATCHED_JOB_H
#define DDP_CLIENT_WEB_WEB_WATCHED_JOB_H

#include "base/web/web_levels.h"
#include "client/link.h"
#include "client/web/web_lines.h"
#include "client/web/web_newest.h"

/* The curves that a job's program reports, or those that its nodes measure, and how far they have been sent. */
struct web_watched_curves {
    struct watched_series *series;
    size_t count, cap;
    size_t next; /* where the next series is probably found */
    struct web_newest newest;
    bool sent; /* a frame */
};

/* A job that some viewer watches, and how far its points, events and output have been sent. One thread. */
struct web_watched_job {
    int64_t job;
    bool curves; /* its status, points and events are wanted */
    bool logs;
    /* private */
    struct web_watched_curves reported, measured;
    int64_t highest_step;
    bool repeats; /* the job does steps again that it had done before it went back to a snapshot */
    bool has_events, has_log, log_ended;
    int64_t event;             /* the newest */
    int64_t usage_ms;          /* when to ask again for what the nodes measured */
    struct rpc_stream *stream; /* of the output */
    struct web_lines lines;
};

/* Asks for what is new and puts it into the levels. A job that does not exist, or cannot be asked for, is no error.
 * UNAVAILABLE: the coordinator does not answer. */
MUST_CHECK enum err_code web_watched_job_put(struct web_watched_job *j, struct link *link,
                                             struct web_levels *levels, struct err *e);
void web_watched_job_release(struct web_watched_job *j);

#endif
