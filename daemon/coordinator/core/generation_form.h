#ifndef DDP_DAEMON_COORDINATOR_CORE_GENERATION_FORM_H
#define DDP_DAEMON_COORDINATOR_CORE_GENERATION_FORM_H

#include "daemon/coordinator/core/model.h"

struct placement_choice;

/* Forms the job's next generation on the chosen nodes; node ranks follow the order of `chosen`. */
void generation_form(struct core *core, struct job *job, const struct placement_choice *chosen, size_t count);
/* Forms a generation of these spawns, in the order of their ranks, in the call that has ended their last generation. Members of
 * one node have consecutive ranks. The job's other spawns do not change. */
void generation_form_with(struct core *core, struct job *job, struct spawn *const *members, int count);

#endif
