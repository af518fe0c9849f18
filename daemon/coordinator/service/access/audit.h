#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_AUDIT_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_AUDIT_H

#include <stdint.h>

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/access/identity.h"
#include "proto/rpc_server.h"

/* The audit log: who changed what, committed together with the change. Loop thread. */

struct service;

/* The refused calls of one caller within a minute. */
struct refusal {
    char who[80], origin[96], text[384];
    uint64_t count, written; /* refused in this minute; of these the calls that have a line */
};

/* Adds a line about a change that the service itself makes. what: a fixed word, such as "user_add". */
void audit_add(struct service *s, const struct identity *who, const char *what, int64_t job, const char *fmt,
               ...) __attribute__((format(printf, 5, 6)));
/* Passes a user's event to the core and, if the core accepts it, adds a line. */
void audit_event(struct service *s, struct rpc_call *rpc, const struct core_event *event);
/* Records a refused call. A caller's first one in a minute is written at once; the others are counted. */
void audit_refused(struct service *s, const char *who, const char *origin, const char *method,
                   const char *why);
void audit_trim(struct service *s); /* deletes lines beyond audit_keep and audit_rows */
void audit_get(struct rpc_call *rpc, const void *request, void *user); /* GetAudit: on_start */

#endif
