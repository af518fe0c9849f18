#ifndef DDP_TRAINER_CONFIG_H
#define DDP_TRAINER_CONFIG_H

#include <stdbool.h>

#include "base/err.h"
#include "base/job.h"

/* What a worker is told: by its command line, or by the supervisor through the environment. */
struct trainer_config {
    struct job_spec job;
    bool standalone;
    int local_rank, local_world_size;
    char *node;         /* its name, for messages */
    char *node_address; /* where peers reach this node; NULL: loopback */
    char *run_dir;      /* where ranks of this node meet; NULL: none do */
};

/* ddp-trainer --standalone JOB.yaml [--set KEY=VALUE ...], or no arguments and DDP_JOB_FILE, LOCAL_RANK,
 * LOCAL_WORLD_SIZE, DDP_NODE, DDP_NODE_ADDRESS and DDP_RUN_DIR. INVALID_ARGUMENT: usage, or a job file that
 * is wrong. */
MUST_CHECK enum err_code config_read(struct trainer_config *out, int argc, char **argv, struct err *e);
void config_release(struct trainer_config *c);

#endif
