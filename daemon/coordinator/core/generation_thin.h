#ifndef DDP_DAEMON_COORDINATOR_CORE_GENERATION_THIN_H
#define DDP_DAEMON_COORDINATOR_CORE_GENERATION_THIN_H

#include "daemon/coordinator/core/model.h"

/* A job whose rounds close without late ranks, or which often goes to other nodes, has a new generation each time, for as long as it
 * runs. This removes old generations of which nothing is needed any more: behind the newest config.keep_generations, those that
 * ended without a failure and are the last one of no spawn. Failures of which no rank was the cause count for max_replacements for a
 * day, and are removed later. Called when a generation has been formed. Events stay. */
void generation_thin(struct core *core, struct job *job);

#endif
