#ifndef DDP_CLIENT_RUN_RUN_SESSION_H
#define DDP_CLIENT_RUN_RUN_SESSION_H

#include "client/job_watch.h"
#include "client/run/local_cluster.h"
#include "client/run/log_tail.h"
#include "client/run/run_request.h"
#include "client/run/run_terminal.h"
#include "client/run/waiting.h"
#include "client/screen/screen_follow.h"
#include "client/web/web_session.h"

/* A job of `ddpctl run` in the foreground. The session watches the job, copies the output of this node's
 * workers from their log files, and passes on ^C and other signals, until the job has ended and all output is
 * copied. One thread. */
struct run_session {
    const struct run_request *request;
    bool quiet;
    struct local_cluster local;   /* this machine's daemons; local.logs has the log files */
    struct run_terminal terminal; /* opened by run_session_init */
    struct link link;             /* to the coordinator, on this or another machine */
    bool serves_web;              /* --web */
    struct web_session *web;      /* owned; NULL: not open */
    const char *node;             /* this node's name in the job; NULL: it is the only node */
    int64_t job;
    /* the flags that run the job without GPUs, for advice; NULL: it does not ask for GPUs of this machine */
    const char *without_gpus;
    /* run over several hosts: called each turn instead of the check of the queue; an error ends the session.
     * NULL: one machine */
    enum err_code (*turn)(struct run_session *s, struct err *e);
    void *owner; /* for turn */
    /* private */
    struct job_watch watch;
    struct log_tail tail;
    struct follow_view view;
    struct buf talk; /* messages of ddpctl itself, for stderr */
    int64_t generation, active_ms;
    int stops;   /* signals that were passed on as cancels */
    bool screen; /* a train job on a terminal: its progress is shown in place of its workers' output */
    bool ended, unread, several;
    struct waiting waiting;
    char state[16], reason[256]; /* of the job, as last heard */
    int exit_code;
};

/* Catches the request's signals from here on. */
void run_session_init(struct run_session *s, const struct run_request *request, bool quiet);
/* --web: serves the page of this machine's coordinator until run_session_release, and prints its URL. host: the name of this
 * machine in a run over several hosts, whose user may sit elsewhere; else NULL. Does nothing without --web. */
MUST_CHECK enum err_code run_session_serve_web(struct run_session *s, const char *host, struct err *e);
/* Runs until the job has ended; s->exit_code is its exit code then. The caller has set link and job.
 * FAILED_PRECONDITION: the job cannot start here. UNAVAILABLE: a daemon of this machine has ended. CANCELLED:
 * the user typed ^C a third time. */
MUST_CHECK enum err_code run_session_run(struct run_session *s, struct err *e);
/* Ends the local cluster, closes the link, and prints where the logs are. code: ddpctl's exit code. */
void run_session_release(struct run_session *s, int code);

#endif
