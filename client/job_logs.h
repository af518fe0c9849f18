#ifndef DDP_CLIENT_JOB_LOGS_H
#define DDP_CLIENT_JOB_LOGS_H

#include "client/connect.h"

/* The output of a job as the coordinator sends it (RPC ReadLogs). When the coordinator was away and has come back, the
 * output goes on with the next byte. */
struct job_logs {
    bool over; /* all output has been received */
    /* private */
    struct link *link; /* borrowed */
    Ddp__V1__ReadLogsRequest request;
    struct rpc_stream *stream; /* NULL: not open */
    Ddp__V1__LogPlace *places; /* up to where each rank's output has been received */
    size_t count, cap;
    int64_t first_generation; /* that output has come of; 0: of none yet */
    int64_t asked_generation; /* the first one of the stream; 0: not asked for */
    bool caught_up;           /* a wait brought nothing: all logs that there were have been received */
    bool incomplete;          /* the coordinator is older and sends no places */
};

/* The output of all ranks from the job's start to its end. */
void job_logs_init(struct job_logs *l, struct link *link, int64_t job);
/* The output that the request names. It must not be a search if it is to be continued. Its texts must outlive `l`. */
void job_logs_init_request(struct job_logs *l, struct link *link, const Ddp__V1__ReadLogsRequest *request);
bool job_logs_are_open(const struct job_logs *l);
/* Opens the output, or continues it after UNAVAILABLE. */
MUST_CHECK enum err_code job_logs_open(struct job_logs *l, struct err *e);
/* Waits at most wait_ms. ERR_OK: *data is the next output (rpc_free), or NULL if there is none yet or l->over is set. After
 * any other code the logs are not open. */
MUST_CHECK enum err_code job_logs_next(struct job_logs *l, int64_t wait_ms, Ddp__V1__LogData **data,
                                       struct err *e);
void job_logs_release(struct job_logs *l);

#endif
