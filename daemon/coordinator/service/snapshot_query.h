#ifndef DDP_DAEMON_COORDINATOR_SERVICE_SNAPSHOT_QUERY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_SNAPSHOT_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/ddp.pb-c.h"

struct agent_session;

/* Asks a node whether it has a job's snapshots, for a job that waits for them. Loop thread. */
void snapshot_query_send(struct agent_session *session, int64_t job);
/* Passes the answer to the core. False: this answers a question of `ddpctl check`. */
bool snapshot_query_answered(struct agent_session *session, const Ddp__V1__CheckAnswer *answer);

#endif
