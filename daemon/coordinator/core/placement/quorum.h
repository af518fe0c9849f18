#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_QUORUM_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_QUORUM_H

#include "daemon/coordinator/core/model.h"

/* Rounds that do not wait for their last members (sync.quorum); quorum.c describes how. */

/* What a worker says in Watch: it has come to this exchange (0: to none), and stands still there. */
void quorum_arrived(struct core *core, struct spawn *s, int64_t exchange, bool holds);
void quorum_looked(struct core *core, struct job *job); /* a node has said how its workers are */
/* The first exchange before which members stand still, because one that was late waits to come back; 0: none. */
int64_t quorum_hold_from(const struct job *job);
/* The generation has fewer ranks than its job, because one that was late has ended. */
bool quorum_lacks_ranks(const struct job *job);

struct quorum_attendance {
    int come, hold,
        return_; /* members that have come, of these those that hold, and late ones that wait to return */
    bool able;   /* all of them can go on in another generation */
};
/* Whether the present round closes now, without members or with some that come back. Notes when it will. */
bool quorum_round_closes(struct core *core, struct job *job, struct quorum_attendance *a);
bool quorum_has_come(const struct job *job, const struct spawn *s); /* to the present round's exchange */
bool quorum_returns(const struct spawn *s);                         /* it was late, and waits to come back */

void quorum_tick(struct core *core, struct job *job);
int64_t quorum_deadline(const struct job *job); /* INT64_MAX: none */

/* The grace of `auto`: median + 4 MAD of the gaps, at least 1 s and at most 10 min; 30 s while there are fewer than 4. */
int64_t quorum_grace_ms(const int64_t *gaps, size_t count);

#endif
