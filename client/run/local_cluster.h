#ifndef DDP_CLIENT_RUN_LOCAL_CLUSTER_H
#define DDP_CLIENT_RUN_LOCAL_CLUSTER_H

#include <sys/types.h>

#include "client/connect.h"

/* A private cluster for one `ddpctl run`, or this machine's part of one: a coordinator and an agent as child
 * processes in a directory of their own. Both hold the read end of a lifeline pipe and end, with all they
 * started, when this process is gone, however it went. They are in process groups of their own, so that ^C
 * reaches ddpctl alone. */
struct local_cluster {
    char *dir;          /* <tmp>/ddp-run-XXXXXX: coordinator/, agent/, logs/, *.log, lock */
    char *logs;         /* of the workers */
    int lock, lifeline; /* -1: not open */
    int theirs;         /* the lifeline's other end, for the children */
    pid_t coordinator, agent;
};
#define LOCAL_CLUSTER_INIT                                                                                   \
    {                                                                                                        \
        .lock = -1, .lifeline = -1, .theirs = -1                                                             \
    }

/* What the agent is told. Texts are borrowed; NULL: its own default. */
struct local_cluster_agent {
    int64_t slots;           /* CPU slots that it offers */
    const char *coordinator; /* "host:port" elsewhere; NULL: the one beside it, by its unix socket */
    const char *token;       /* for the one elsewhere; NULL: none, --insecure */
    const char *node, *address;
    const char *workdir;  /* of every command */
    char *const *command; /* what command jobs run here */
};

/* All three steps, for a job of this machine alone; the two start at once. log_dir NULL: in the directory. */
MUST_CHECK enum err_code local_cluster_start(struct local_cluster *local, int64_t slots, const char *log_dir,
                                             struct err *e);
/* The directory and the lifeline. local_cluster_stop whatever the result. */
MUST_CHECK enum err_code local_cluster_open(struct local_cluster *local, const char *log_dir, struct err *e);
/* Serves its unix socket, and where listen is given that address, by the token (NULL: --insecure); both from
 * the moment this returns. UNAVAILABLE with the last words of its log when it does not start. */
MUST_CHECK enum err_code local_cluster_start_coordinator(struct local_cluster *local, const char *listen,
                                                         const char *token, struct err *e);
MUST_CHECK enum err_code local_cluster_start_agent(struct local_cluster *local,
                                                   const struct local_cluster_agent *agent, struct err *e);
MUST_CHECK enum err_code local_cluster_link(const struct local_cluster *local, struct link *link,
                                            struct err *e);
/* UNAVAILABLE with the last words of its log when one of the two has ended. */
MUST_CHECK enum err_code local_cluster_check(struct local_cluster *local, struct err *e);
void local_cluster_end(struct local_cluster *local); /* the processes alone */
/* Ends both and removes the directory, or all but the workers' logs where keep_logs. */
void local_cluster_stop(struct local_cluster *local, bool keep_logs);

#endif
