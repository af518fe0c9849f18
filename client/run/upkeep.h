#ifndef DDP_CLIENT_RUN_UPKEEP_H
#define DDP_CLIENT_RUN_UPKEEP_H

#include "client/run/membership.h"
#include "client/run/run_session.h"

/* What the host of a run over several hosts looks after while the job runs: that there are the nodes it
 * needs, and that they are such as it can go on with. It says what is waited for, and gives the job up for
 * all hosts when that does not come: other nodes within the join timeout, a first start within a minute. */
struct upkeep {
    struct session *session;         /* borrowed, as the others */
    const struct membership *member; /* who is here */
    const char *address;             /* where others may come to */
    int64_t short_ms; /* since when there have been too few for the job to go on, 0: there are enough */
    bool gave_up;
};

MUST_CHECK enum err_code upkeep_turn(struct upkeep *u, struct err *e);

#endif
