#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_WORLD_SIZE_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_WORLD_SIZE_H

#include "daemon/coordinator/core/placement/capacity.h"

/* Which nodes give a world size that the job can have. */

bool world_size_matters(const struct job_spec *spec); /* reproducible: world */
/* Chooses nodes from `list` (best first): `least` to `most` nodes, in addition to `with` processes that the
 * job keeps. The chosen nodes move to the front. Returns their number; 0: no choice is possible, and the list
 * is unchanged. */
size_t world_size_choose(const struct job_spec *spec, int64_t least, int64_t most, int64_t with,
                         struct placement_choice *list, size_t count);
/* Some number of nodes from min to max could give a world size that the job can have. */
bool world_size_possible(const struct job_spec *spec, int64_t min, int64_t max);

#endif
