#ifndef DDP_DAEMON_COORDINATOR_CORE_NODES_NODES_H
#define DDP_DAEMON_COORDINATOR_CORE_NODES_NODES_H

#include "daemon/coordinator/core/model.h"

/* Sessions, liveness and leases of nodes; nodes.c describes the rules. */
void nodes_hello(struct core *core, const struct core_event *event);
void nodes_heartbeat(struct core *core, struct node *node, const struct core_event *event);
void nodes_goodbye(struct core *core, struct node *node, const struct core_event *event);
void nodes_session_closed(struct core *core, struct node *node, const struct core_event *event);
void nodes_deaf(struct core *core, const struct core_event *event);
void nodes_tick(struct core *core, struct node *node);
int64_t nodes_deadline(const struct core *core, const struct node *node); /* INT64_MAX: none */

void nodes_heard(struct core *core, struct node *node); /* a message of any kind came from the node */
/* Moves a joining node to alive or draining once its facts have answered its wish. */
void nodes_settle(struct core *core, struct node *node);
/* Places nothing on the node for 30 s, because it could not start a process. */
void nodes_rest(struct core *core, struct node *node);

#endif
