#ifndef DDP_TRAINER_SIZES_H
#define DDP_TRAINER_SIZES_H

#include "base/err.h"
#include "base/job/job.h"
#include "base/plan/plan_sizes.h"

/* What a job would need of each of `world` ranks, `per_node` on each node, without training: model, optimizer and strategy are opened on
 * a device that has no memory (trainer/device/sizing.h), so the result is what they would allocate. gpu_memory: bytes of each rank's
 * GPU; 0: ranks are on CPUs. The data is read only if the model's vocabulary is that of the data. The caller releases *out. */
MUST_CHECK enum err_code sizes_of_job(const struct train_spec *spec, int world, int per_node,
                                      size_t gpu_memory, struct plan_sizes *out, struct err *e);

#endif
