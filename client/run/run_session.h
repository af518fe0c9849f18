#ifndef DDP_CLIENT_RUN_RUN_SESSION_H
#define DDP_CLIENT_RUN_RUN_SESSION_H

#include "client/diagnose/waiting.h"
#include "client/job_watch.h"
#include "client/run/local_cluster.h"
#include "client/run/log_tail.h"
#include "client/run/run_request.h"
#include "client/screen/screen_follow.h"

/* A job of `ddpctl run` in the foreground: it is watched, what the workers of this node write is copied
 * (straight from their log files), ^C and its like are obeyed, until the job has ended and all is copied. */
struct run_session {
    const struct run_request *request;
    bool quiet;
    struct local_cluster local; /* local.logs: where this node's agent keeps them */
    struct link link;           /* to the coordinator, wherever it is */
    const char *node;           /* this node's name in the job; NULL: it is the only one */
    int64_t job;
    /* where the job wants GPUs, and this machine alone can give them: the flags that do without; else NULL */
    const char *without_gpus;
    /* of a run over several hosts: called each turn instead of the look at the queue; an error ends the
     * session. NULL: none */
    enum err_code (*tend)(struct run_session *s, struct err *e);
    void *owner;
    /* its own */
    struct job_watch watch;
    struct log_tail tail;
    struct follow_view view;
    struct buf out, err;
    int64_t generation, active_ms;
    int stops; /* cancels that were sent */
    bool ended, unread;
    struct waiting waiting;
    char state[16], reason[256]; /* of the job, as last heard */
    int exit_code;
};

/* Catches the launch's signals from here on. */
void run_session_init(struct run_session *s, const struct run_request *request, bool quiet);
/* Until the job has ended: then s->exit_code is its code. link and job are set by now. FAILED_PRECONDITION:
 * it does not start here; UNAVAILABLE: a daemon of local has ended; CANCELLED: a third ^C. */
MUST_CHECK enum err_code run_session_run(struct run_session *s, struct err *e);
/* Ends the local cluster and closes the link; says where the logs are. code: what ddpctl exits with. */
void run_session_release(struct run_session *s, int code);

#endif
