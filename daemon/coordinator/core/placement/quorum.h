#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_QUORUM_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_QUORUM_H

#include "daemon/coordinator/core/model.h"

/* Rounds that do not wait for late members (sync.quorum). quorum.c describes the protocol. */

/* A worker has reported in Watch that it has arrived at this exchange (0: at none), and whether it holds there. */
void quorum_arrived(struct core *core, struct spawn *s, int64_t exchange, bool holds);
void quorum_looked(struct core *core, struct job *job); /* a node has reported the states of its workers */
/* The first exchange before which members must hold, because a late member waits to come back; 0: none. */
int64_t quorum_hold_from(const struct job *job);
/* Whether the generation has fewer ranks than the job wants, because a late rank has ended. */
bool quorum_lacks_ranks(const struct job *job);

struct quorum_attendance {
    int come;    /* members that have arrived */
    int hold;    /* of these, members that hold there */
    int return_; /* late members that wait to come back */
    bool able;   /* all of them can go on in another generation */
};
/* Whether the present round closes now, either without late members or with returning ones. Also sets the time at which it
 * will close. */
bool quorum_round_closes(struct core *core, struct job *job, struct quorum_attendance *a);
bool quorum_has_come(const struct job *job, const struct spawn *s); /* at the present round's exchange */
bool quorum_returns(const struct spawn *s);                         /* late, and waits to come back */

void quorum_tick(struct core *core, struct job *job);
int64_t quorum_deadline(const struct job *job); /* INT64_MAX: none */

/* The grace of `auto`: median + 4 MAD of the gaps, at least 1 s and at most 10 min; 30 s while there are fewer than 4. */
int64_t quorum_grace_ms(const int64_t *gaps, size_t count);

#endif
