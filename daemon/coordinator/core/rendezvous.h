#ifndef DDP_DAEMON_COORDINATOR_CORE_RENDEZVOUS_H
#define DDP_DAEMON_COORDINATOR_CORE_RENDEZVOUS_H

#include "daemon/coordinator/core/model.h"

/* Native workers find each other; rendezvous.c describes the protocol. */
void rendezvous_join(struct core *core, const struct core_event *event);
void rendezvous_bootstrap(struct core *core, const struct core_event *event);
void rendezvous_watch(struct core *core, const struct core_event *event);
void rendezvous_gone(struct core *core, const struct core_event *event);
void rendezvous_tick(struct core *core, struct generation *g);
int64_t rendezvous_deadline(const struct generation *g); /* INT64_MAX: none */

/* The generation has ended: answers its waiting Joins and tells its watchers. */
void rendezvous_closed(struct core *core, struct generation *g, const char *why);
/* The generation was formed: tells those of its members that have outlived the last one. */
void rendezvous_formed(struct core *core, const struct generation *g);
/* One member is no longer in its generation: answers its waiting Join. */
void rendezvous_left(struct core *core, struct spawn *s, const char *why);
/* The generation is draining: tells its watchers to stop after their step. */
void rendezvous_stopping(struct core *core, struct generation *g);
/* The node has said hello, and its cards are adopted: tells rank 0 of jobs whose job file is older than what they use. */
void rendezvous_node_known(struct core *core, const struct node *node);
/* The job file has a new revision: tells rank 0. */
void rendezvous_tuned(struct core *core, struct generation *g);
/* The members are to wait for a hand-over, or not any more: tells its watchers. */
void rendezvous_handover(struct core *core, struct generation *g);
/* How many ranks of the generation hold a Watch stream, and so can reach the coordinator. */
int rendezvous_watching(const struct core *core, const struct generation *g);
/* Answers the calls of a job that is about to be removed and built anew from merged records: its workers call
 * again. */
void rendezvous_renew(struct core *core, const struct job *job);

#endif
