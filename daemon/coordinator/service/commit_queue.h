#ifndef DDP_DAEMON_COORDINATOR_SERVICE_COMMIT_QUEUE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_COMMIT_QUEUE_H

#include "daemon/coordinator/core/core.h"
#include "store/store.h"

/* From events to commits to effects: all events of one turn of the loop become one commit, and their effects
 * (replies, acknowledgements, wishes) are released only after it. Loop thread. */

struct service;

/* Hands an event to the core. Its changes are committed at the end of this turn of the loop. */
void commit_queue_event(struct service *s, const struct core_event *event);
/* Adds a change of the service itself (users, audit log), committed together with the core's changes. The
 * caller fills in its record. */
struct change *commit_queue_change(struct service *s, enum change_kind kind);
/* Adds an event that belongs to no job, such as a failed backup; see `ddpctl events`. */
void commit_queue_cluster_event(struct service *s, const char *what, const char *text);
/* Commits the pending changes and releases their effects. Handlers that read call it first, so that no reply
 * shows a state that a crash could take back. While commits fail it does nothing: reads then show the known state. */
void commit_queue_flush(struct service *s);
/* As commit_queue_flush, but also tries while commits fail. For the timer that repeats them, and for the end of the program. */
void commit_queue_try(struct service *s);
/* ERR_OK, or RESOURCE_EXHAUSTED while commits fail: then calls that change state are refused. The message names the cause. */
MUST_CHECK enum err_code commit_queue_accepts(const struct service *s, struct err *e);
/* Whether the disk has room for a new job beside the records of running jobs. *bytes: what is left. */
bool commit_queue_has_room(const struct service *s, int64_t *bytes);
/* For DATA_LOSS: releases no more effects and ends the program with this error. */
void commit_queue_damaged(struct service *s, const struct err *e);

#endif
