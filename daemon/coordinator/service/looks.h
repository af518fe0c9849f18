#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOOKS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/ddp.pb-c.h"

struct session;

/* Asks the node whether it has the job's snapshots; the answer becomes an event of the core. */
void looks_ask(struct session *session, int64_t job);
/* False: this is the answer to another question. */
bool looks_answered(struct session *session, const Ddp__V1__CheckAnswer *answer);

#endif
