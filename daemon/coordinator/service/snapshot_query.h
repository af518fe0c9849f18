#ifndef DDP_DAEMON_COORDINATOR_SERVICE_SNAPSHOT_QUERY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_SNAPSHOT_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/ddp.pb-c.h"

struct agent_session;

/* Asks the node whether it has the job's snapshots; the answer becomes an event of the core. */
void snapshot_query_send(struct agent_session *session, int64_t job);
/* False: this is the answer to another question. */
bool snapshot_query_answered(struct agent_session *session, const Ddp__V1__CheckAnswer *answer);

#endif
