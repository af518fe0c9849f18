#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_GPU_CHOICE_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_GPU_CHOICE_H

#include "daemon/coordinator/core/model.h"

/* Which GPUs new workers get. Several workers may share a GPU, but the GPUs of one worker are all different, so it matters not
 * only how many places are free. The workers for which this placement pass has reserved GPUs must find theirs, too. */

/* Begins a pass: nothing is reserved. */
void gpu_choice_clear(struct node *node);
/* Reserves GPUs for these workers of the job, beside or instead of those that it has there now. */
void gpu_choice_reserve(struct node *node, const struct job *job, int procs, int gpus_each);
/* Whether the new workers can have GPUs without taking those that are reserved for other jobs. leaving: the job's present workers
 * there end first, except its survivors. */
bool gpu_choice_respects_reserved(const struct job *job, const struct node *node, int procs, int gpus_each,
                                  bool leaving);
/* The UUIDs of the GPUs for a new worker of the job, which placement has made sure are there. The caller frees the list. */
char **gpu_choice_take(const struct job *job, const struct node *node, int gpus_each);

#endif
