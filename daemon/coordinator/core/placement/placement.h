#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_PLACEMENT_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_PLACEMENT_H

#include "daemon/coordinator/core/model.h"

/* Places the jobs that wait, and offers free nodes to elastic jobs; placement.c describes the rules. */
void placement_run(struct core *core);
/* Whether the job is in the queue: it gets a place as soon as there is one. Jobs on hold are not. */
bool placement_wants(const struct job *job);
/* Compares two struct job * by whose turn comes first, for qsort. */
int placement_compare_turns(const void *a, const void *b);

#endif
