#ifndef DDP_DAEMON_COORDINATOR_CORE_JOB_SUMS_H
#define DDP_DAEMON_COORDINATOR_CORE_JOB_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/coordinator/core/core.h"

/* Views of running jobs for monitoring: one job as a whole, and the GPUs that running jobs hold. */

struct core_job_sums {
    int ranks, gpus;
    int idle_gpu_ranks; /* ranks with a GPU that is idle now */
    struct usage
        usage; /* of all ranks: sums, but for utilisation (mean) and temperature (largest); NaN: not known of all */
    double loss;         /* NaN: not reported */
    int64_t step, steps; /* 0: not known */
    double steps_per_s;
};
/* False: the job does not run. */
bool core_job_sums(const struct core *core, int64_t job, struct core_job_sums *out);

struct core_gpu_use {
    const char *node; /* borrowed until the next event, as is gpu */
    const struct core_gpu *gpu;
    int64_t job;
};
/* The GPUs of connected nodes that workers of running jobs hold, by job; a GPU that several workers of a job share is
 * there once. Fills at most `most`; returns how many there are. */
size_t core_gpu_uses(const struct core *core, struct core_gpu_use *out, size_t most);

#endif
