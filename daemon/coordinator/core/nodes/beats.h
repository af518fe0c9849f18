#ifndef DDP_DAEMON_COORDINATOR_CORE_NODES_BEATS_H
#define DDP_DAEMON_COORDINATOR_CORE_NODES_BEATS_H

#include "daemon/coordinator/core/model.h"

/* How often nodes send heartbeats. With thousands of nodes their heartbeats are most of the coordinator's work. Those of a node
 * without workers renew no lease, so their rate is limited: all nodes without workers together send about config.idle_beats a
 * minute. Each acknowledgement says when the next heartbeat is due. A node that sends them less often may be silent for longer:
 * for two and a quarter intervals, so that two heartbeats, each up to 10 % late, still arrive before it counts as lost. This
 * longer limit is at most four times node_timeout. It ends when the node gets a worker, and when the stream closes. */

/* Sets and returns the interval that an acknowledgement names. */
int64_t beats_next(const struct core *core, struct node *node);
/* The node sends heartbeats at the usual interval: after a hello, and while it has workers. */
void beats_usual(const struct core *core, struct node *node);

#endif
