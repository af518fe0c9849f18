#ifndef DDP_CLIENT_PLAN_PLAN_TRAINER_H
#define DDP_CLIENT_PLAN_PLAN_TRAINER_H

#include <stdint.h>

#include "base/plan/plan_sizes.h"

/* What `ddpctl plan` lets ddp-trainer do, because the models' code is there. */

/* What the job of this text needs of each rank; the caller releases it. per_node: number of ranks on each node. gpu_memory: bytes of each
 * rank's GPU; 0: ranks are on CPUs. */
MUST_CHECK enum err_code plan_trainer_sizes(const char *job_text, int64_t ranks, int64_t per_node,
                                            double gpu_memory, struct plan_sizes *out, struct err *e);
/* Trains in one process on this machine's CPU for some seconds, and then kills it: the median time of a step, in seconds. */
MUST_CHECK enum err_code plan_trainer_step(const char *job_text, double *seconds, struct err *e);
/* For mkstemp and mkdtemp: in TMPDIR, or /tmp. The caller frees. */
char *plan_temporary(void);
/* Bytes that one core copies in a second, between two arrays of so many bytes. */
double plan_copy_rate(double bytes);

#endif
