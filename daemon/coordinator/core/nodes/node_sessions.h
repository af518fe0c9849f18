#ifndef DDP_DAEMON_COORDINATOR_CORE_NODES_NODE_SESSIONS_H
#define DDP_DAEMON_COORDINATOR_CORE_NODES_NODE_SESSIONS_H

#include "daemon/coordinator/core/model.h"

/* Finds nodes by their sessions. Each message of an agent needs this, so it must not take longer with more nodes. */

/* NULL: the session is not the newest of any node, and its messages are ignored. */
struct node *node_sessions_find(const struct core *core, uint64_t session);
/* Gives the node a session, which no other node has, in place of its last one; 0: none. */
void node_sessions_set(struct core *core, struct node *node, uint64_t session);

#endif
