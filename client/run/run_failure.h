#ifndef DDP_CLIENT_RUN_RUN_FAILURE_H
#define DDP_CLIENT_RUN_RUN_FAILURE_H

#include "client/run/run_error.h"

/* Prints what else is known about a failed run after its first line ("rank 1 on box1 exited with code 3"): the last lines on
 * stderr of the ranks that failed, unless they are still on the screen; an earlier error of another rank; and how its peers
 * ended, marked as a consequence. */
struct run_failure {
    const Ddp__V1__JobStatus *job;
    const Ddp__V1__ProbeJobReply *probe; /* as for failed_ranks_find */
    const struct run_error *first;
    bool (*seen)(void *user, int rank); /* as for failed_ranks_print */
    void *user;
};
void run_failure_print(const struct run_failure *failure, struct buf *out);

#endif
