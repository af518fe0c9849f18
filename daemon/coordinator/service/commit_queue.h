#ifndef DDP_DAEMON_COORDINATOR_SERVICE_COMMIT_QUEUE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_COMMIT_QUEUE_H

#include "daemon/coordinator/core/core.h"
#include "store/store.h"

/* Events to commits to effects: what arrived in one turn of the loop becomes one commit, and only then is it
 * answered. Loop thread. */

struct service;

/* Hands an event to the core; its outcome is committed at the end of this turn of the loop. */
void commit_queue_event(struct service *s, const struct core_event *event);
/* Adds a change of the service itself, committed with the core's changes at the end of this turn. The caller
 * fills in its record. */
struct change *commit_queue_change(struct service *s, enum change_kind kind);
/* Writes an event of the cluster itself with the next commit. */
void commit_queue_cluster_event(struct service *s, const char *what, const char *text);
/* Commits what is pending and carries it out: before a read, so that nobody sees what is not durable. */
void commit_queue_flush(struct service *s);
/* ERR_OK, or why nothing that changes state is taken now. */
MUST_CHECK enum err_code commit_queue_accepts(const struct service *s, struct err *e);
/* The database is damaged (DATA_LOSS): no more effects are released, and the program ends with this error. */
void commit_queue_damaged(struct service *s, const struct err *e);

#endif
