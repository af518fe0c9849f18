#ifndef DDP_DAEMON_COORDINATOR_CORE_CARDS_LOST_GENERATION_H
#define DDP_DAEMON_COORDINATOR_CORE_CARDS_LOST_GENERATION_H

#include "daemon/coordinator/core/model.h"

/* The worker says in Watch or Join that it belongs to this generation. */
void lost_generation_note(struct spawn *s, int64_t generation);
/* Ends the job's current generation if a worker belongs to a later one that the records lack, and no card can bring it any
 * more. The workers of both go on in a generation with a number that is above both. */
void lost_generation_review(struct core *core, struct job *job);

#endif
