#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_ELASTIC_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_ELASTIC_H

#include "daemon/coordinator/core/placement/capacity.h"

/* Other nodes for a running job: growth, and the user's resize and restart; elastic.c describes the rules. */
void elastic_resize(struct core *core, const struct core_event *event);
void elastic_restart(struct core *core, const struct core_event *event);
bool elastic_wants_nodes(const struct core *core, const struct job *job); /* the job would take more nodes */
/* `count` more nodes could join the job. Returns true when it is time to stop for them (elastic_grow). */
bool elastic_offer(struct core *core, struct job *job, const struct placement_choice *more, size_t count);
void elastic_grow(struct core *core, struct job *job);

#endif
