#ifndef DDP_DAEMON_COORDINATOR_CORE_NODES_OPERATOR_H
#define DDP_DAEMON_COORDINATOR_CORE_NODES_OPERATOR_H

#include "daemon/coordinator/core/model.h"

/* The operator's commands for nodes: drain, undrain, forget. */
void operator_drain(struct core *core, const struct core_event *event);
void operator_undrain(struct core *core, const struct core_event *event);
void operator_forget(struct core *core, const struct core_event *event);
/* Drains the node. note: kept with the node and shown by `ddpctl nodes`, or NULL; why: for the event. */
void operator_withdraw(struct core *core, struct node *node, const char *note, const char *why);

#endif
