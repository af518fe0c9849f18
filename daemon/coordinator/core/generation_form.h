#ifndef DDP_DAEMON_COORDINATOR_CORE_GENERATION_FORM_H
#define DDP_DAEMON_COORDINATOR_CORE_GENERATION_FORM_H

#include "daemon/coordinator/core/model.h"

struct place_choice;

/* Forms the job's next generation on the chosen nodes; node ranks follow the order of `chosen`. */
void form_generation(struct core *core, struct job *job, const struct place_choice *chosen, size_t count);

#endif
