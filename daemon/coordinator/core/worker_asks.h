#ifndef DDP_DAEMON_COORDINATOR_CORE_WORKER_ASKS_H
#define DDP_DAEMON_COORDINATOR_CORE_WORKER_ASKS_H

#include "daemon/coordinator/core/model.h"

/* What the processes of commands ask for (worker_asks.c). Their answers are in the wish of their node. */
void worker_asks_apply(struct core *core, struct spawn *s, const struct spawn_asks *asks);
/* Names the step at which the ranks of a generation stop, if all living ones have promised where they wait for it. */
void worker_asks_settle(struct core *core, struct generation *g);
/* A rank of the generation has called should_stop: the ranks can agree on a step. */
bool worker_asks_heeded(const struct generation *g);

#endif
