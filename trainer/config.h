#ifndef DDP_TRAINER_CONFIG_H
#define DDP_TRAINER_CONFIG_H

#include <stdbool.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/options.h"

/* The configuration of a worker: from its command line, or from the environment that its supervisor sets. */
struct trainer_config {
    struct job_spec job;
    bool standalone;
    int local_rank, local_world_size;
};

/* Standalone: reads the job file that the options name, and applies --set. Otherwise reads DDP_JOB_FILE,
 * LOCAL_RANK and LOCAL_WORLD_SIZE; link_open reads the rest of the environment. INVALID_ARGUMENT: an invalid
 * value in the environment, or an invalid job file. */
MUST_CHECK enum err_code config_read(struct trainer_config *out, const struct trainer_options *o,
                                     struct err *e);
void config_release(struct trainer_config *c);

#endif
