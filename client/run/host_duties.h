#ifndef DDP_CLIENT_RUN_HOST_DUTIES_H
#define DDP_CLIENT_RUN_HOST_DUTIES_H

#include "client/run/run_membership.h"
#include "client/run/run_session.h"

/* What the host of a run over several hosts looks after while the job runs: that there are the nodes it
 * needs, and that they are such as it can go on with. It says what is waited for, and gives the job up for
 * all hosts when that does not come: other nodes within the join timeout, a first start within a minute. */
struct host_duties {
    struct run_session *session;         /* borrowed, as the others */
    const struct run_membership *member; /* who is here */
    const char *address;                 /* where others may come to */
    int64_t short_ms; /* since when there have been too few for the job to go on, 0: there are enough */
    bool gave_up;
};

MUST_CHECK enum err_code host_duties_turn(struct host_duties *d, struct err *e);

#endif
