#ifndef DDP_CLIENT_LOCAL_H
#define DDP_CLIENT_LOCAL_H

#include <sys/types.h>

#include "client/connect.h"

/* A private cluster of this machine, for one `ddpctl run`: a coordinator and an agent as child processes in a
 * directory of their own, on a unix socket. Both hold the read end of a lifeline pipe and end, with all they
 * started, when this process is gone, however it went. They are in process groups of their own, so that ^C
 * reaches ddpctl alone. */
struct local {
    char *dir;          /* <tmp>/ddp-run-XXXXXX: coordinator/, agent/, logs/, *.log, lock */
    char *logs;         /* of the workers */
    int lock, lifeline; /* -1: not open */
    pid_t coordinator, agent;
};

/* Starts both. slots: CPU slots the agent offers at least. log_dir NULL: in the directory. */
MUST_CHECK enum err_code local_start(struct local *local, int64_t slots, const char *log_dir, struct err *e);
MUST_CHECK enum err_code local_link(const struct local *local, struct link *link, struct err *e);
/* UNAVAILABLE with the last words of its log when one of the two has ended. */
MUST_CHECK enum err_code local_check(struct local *local, struct err *e);
/* Ends both and removes the directory, or all but the workers' logs where keep_logs. */
void local_stop(struct local *local, bool keep_logs);

#endif
