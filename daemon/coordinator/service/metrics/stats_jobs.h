#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_STATS_JOBS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_STATS_JOBS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/coordinator/core/job_sums.h"

/* The part of the page of metrics about running jobs and their GPUs. A job has series only while it runs. At most the
 * STATS_JOBS newest jobs and STATS_GPUS GPUs have series, so the page stays small in a large cluster. */

#define STATS_JOBS 256
#define STATS_GPUS 2048

struct stats_job {
    int64_t id;
    const char *name, *user; /* borrowed */
    int64_t restarts;
    double running_s;
    struct core_job_sums sums;
};
struct stats_jobs {
    struct stats_job *jobs; /* the newest first */
    struct core_gpu_use *gpus;
    size_t job_count, gpu_count;
    size_t jobs_left_out, gpus_left_out;
};

void stats_jobs_collect(const struct core *core, int64_t wall_ms, struct stats_jobs *out);
void stats_jobs_release(struct stats_jobs *j); /* for CLEANUP too */
void stats_jobs_print(const struct stats_jobs *j, struct buf *out);

#endif
