#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_HANDOVER_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_HANDOVER_H

#include "daemon/coordinator/core/model.h"

/* A running train job goes to other nodes without a stop; handover.c describes how. */

/* Whether the job's present members can go on in a generation on other nodes, as far as they have said. */
bool handover_possible(const struct job *job);
bool handover_yields(const struct job *holder,
                     const struct job *job); /* the holder leaves nodes to the job: yielding.c */
bool handover_may_begin(const struct core *core, const struct job *job); /* and it can be asked for now */
/* Asks the members to wait between two steps. joining: the nodes that join, which become the hand-over's; NULL: those that
 * placement finds. leaving: the nodes that the job leaves to another one, likewise; NULL: none. Returns false, with nothing
 * taken, if that is not possible now. */
bool handover_begin(struct core *core, struct job *job, const char *why, char **joining, char **leaving);
/* Begins the hand-overs that are due because a job has more nodes than it should, or a node is drained; ends those that
 * take too long. */
void handover_review(struct core *core);
bool handover_ready(const struct job *job);                           /* all members wait */
bool handover_allows(const struct job *job, const struct node *node); /* the job may have this node then */
int64_t handover_most_nodes(const struct job *job);                   /* that it may have then */
/* The next generation forms on these nodes within this call: the present one ends, and its members are free. */
void handover_complete(struct core *core, struct job *job);
/* The worker says how many bytes of state it has gathered for a hand-over; 0: it does not gather. */
void handover_note_gathered(struct core *core, struct spawn *s, int64_t gathered);
/* Called when the next generation cannot form. The members go on, or are drained. */
void handover_give_up(struct core *core, struct job *job);
/* Called when the job's limits or its nodes have changed. Takes back a hand-over that is not needed any more. */
void handover_reconsider(struct core *core, struct job *job);
void handover_tick(struct core *core, struct job *job);
int64_t handover_deadline(const struct job *job); /* INT64_MAX: none */

#endif
