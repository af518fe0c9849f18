#ifndef DDP_CLIENT_RUN_HOSTS_HOST_DUTIES_H
#define DDP_CLIENT_RUN_HOSTS_HOST_DUTIES_H

#include "client/run/hosts/run_membership.h"
#include "client/run/run_session.h"

/* What the hosting machine of a run does while the job runs: it checks that the job has enough nodes, and
 * that it can start on them. It prints what the job waits for. It cancels the job for all hosts if lost nodes
 * are not replaced within the join timeout, or if the job does not start within a minute. One thread. */
struct host_duties {
    struct run_session *session;         /* borrowed, like the other pointers */
    const struct run_membership *member; /* the nodes that are here */
    const char *address;                 /* where other nodes may join, for messages */
    int64_t short_ms;                    /* since when there have been too few nodes, 0: there are enough */
    bool gave_up;                        /* the cancel was sent */
};

/* One turn, called often. */
MUST_CHECK enum err_code host_duties_turn(struct host_duties *d, struct err *e);

#endif
