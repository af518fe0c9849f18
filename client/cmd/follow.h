#ifndef DDP_CLIENT_CMD_FOLLOW_H
#define DDP_CLIENT_CMD_FOLLOW_H

#include "client/connect.h"
#include "client/screen/screen_follow.h"

/* Watches a job until it ends, over restarts of the coordinator. */

struct job_watch {
    struct link *link;
    int64_t job;
    struct rpc_stream *stream;
    int64_t retry_at_ms, retry_ms; /* after the stream broke */
    bool away;
};

void job_watch_open(struct job_watch *w, struct link *link, int64_t job);
void job_watch_close(struct job_watch *w);
/* Waits at most wait_ms for the job's next state. ERR_OK: *job is it (rpc_free), or NULL: nothing new.
 * UNAVAILABLE: the coordinator is away; call again, it is tried anew with growing pauses (0.1 to 1 s).
 * Another code is final. */
MUST_CHECK enum err_code job_watch_next(struct job_watch *w, int64_t wait_ms, Ddp__V1__JobStatus **job,
                                        struct err *e);

/* --follow: prints to stdout until the job ends or the user types ^C, which detaches. *exit_code as `wait`
 * gives it. UNAVAILABLE only when the coordinator never answered. */
MUST_CHECK enum err_code follow_job(struct link *link, int64_t job, int *exit_code, struct err *e);

/* What an ended job means for ddpctl's own exit. */
int job_exit_code(const Ddp__V1__JobStatus *job);

/* ^C and friends, noted instead of obeyed. interrupts() counts them since the start; one that comes
 * again is not counted, but for ^C. */
void interrupts_catch(void);                     /* SIGINT and SIGTERM */
void interrupts_catch_these(const int *signals); /* ended by 0 */
int interrupts(void);
int interrupt_signal(void); /* the last one */

#endif
