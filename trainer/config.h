#ifndef DDP_TRAINER_CONFIG_H
#define DDP_TRAINER_CONFIG_H

#include <stdbool.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/options.h"

/* What a worker is told: by its command line, or by the supervisor through the environment. */
struct trainer_config {
    struct job_spec job;
    bool standalone;
    int local_rank, local_world_size;
};

/* The job file that the options name, with --set applied; without --standalone DDP_JOB_FILE, LOCAL_RANK and
 * LOCAL_WORLD_SIZE (the rest of the environment is the report's). INVALID_ARGUMENT: usage, or a job file
 * that is wrong. */
MUST_CHECK enum err_code config_read(struct trainer_config *out, const struct trainer_options *o,
                                     struct err *e);
void config_release(struct trainer_config *c);

#endif
