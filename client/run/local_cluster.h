#ifndef DDP_CLIENT_RUN_LOCAL_CLUSTER_H
#define DDP_CLIENT_RUN_LOCAL_CLUSTER_H

#include <sys/resource.h>
#include <sys/types.h>

#include "client/connect.h"

/* A private cluster for one `ddpctl run`, or this machine's part of it: a coordinator and an agent as child
 * processes, in a directory of their own. Both hold the read end of a lifeline pipe. When this process dies,
 * in whatever way, they end, and so does everything they started. They are in process groups of their own, so
 * that ^C reaches only ddpctl. One thread. */
struct local_cluster {
    char *dir;          /* <tmp>/ddp-run-XXXXXX: coordinator/, agent/, logs/, *.log, lock */
    char *logs;         /* directory of the workers' logs */
    int lock, lifeline; /* -1: not open; the lock is held while the directory is in use */
    int child_end;      /* the children's end of the lifeline */
    rlim_t files;       /* the user's soft limit of open files, for the children; 0: unknown */
    pid_t coordinator, agent;
};
#define LOCAL_CLUSTER_INIT                                                                                   \
    {                                                                                                        \
        .lock = -1, .lifeline = -1, .child_end = -1                                                          \
    }

/* How the agent is started. Texts are borrowed; NULL: the agent's default. */
struct local_cluster_agent {
    int64_t slots;           /* CPU slots that it offers */
    const char *coordinator; /* "host:port" of another machine's; NULL: the local one, by its unix socket */
    const char *token;       /* for the other machine's coordinator; NULL: --insecure */
    bool own_port; /* the coordinator is this user's on this machine: the token goes to nobody else */
    const char *node, *address;
    const char *ports;    /* its range for MASTER_PORT */
    const char *workdir;  /* of commands, instead of the job's */
    const char *attach;   /* which rank gets this process's stdin, "only" or its number; NULL: none */
    int terminal;         /* with attach: a socket to the terminal, which the rank gets instead; -1: none */
    char *const *command; /* that command jobs run here, instead of the job's */
};

/* Opens the cluster and starts both daemons at once, for a job of this machine only. log_dir NULL: logs go
 * below the directory. */
MUST_CHECK enum err_code local_cluster_start(struct local_cluster *local,
                                             const struct local_cluster_agent *agent, const char *log_dir,
                                             struct err *e);
/* Makes the directory and the lifeline, and raises this process's limit of open files: it reads two log files of each
 * worker. Call local_cluster_stop whatever the result. */
MUST_CHECK enum err_code local_cluster_open(struct local_cluster *local, const char *log_dir, struct err *e);
/* Starts the coordinator. It serves its unix socket and, if listen is not NULL, that address with the token
 * (NULL:
 * --insecure); both are open when this returns. UNAVAILABLE: it did not start; the message has the last lines
 * of its log. */
MUST_CHECK enum err_code local_cluster_start_coordinator(struct local_cluster *local, const char *listen,
                                                         const char *token, struct err *e);
MUST_CHECK enum err_code local_cluster_start_agent(struct local_cluster *local,
                                                   const struct local_cluster_agent *agent, struct err *e);
MUST_CHECK enum err_code local_cluster_link(const struct local_cluster *local, struct link *link,
                                            struct err *e);
/* UNAVAILABLE: one of the daemons has ended; the message has the last lines of its log. */
MUST_CHECK enum err_code local_cluster_check(struct local_cluster *local, struct err *e);
void local_cluster_end(struct local_cluster *local); /* ends the daemons; the directory stays */
/* Ends the daemons and removes the directory; with keep_logs the workers' logs stay. */
void local_cluster_stop(struct local_cluster *local, bool keep_logs);

#endif
