#ifndef DDP_CLIENT_DIAGNOSE_DEEP_RUN_H
#define DDP_CLIENT_DIAGNOSE_DEEP_RUN_H

#include "client/connect.h"
#include "client/diagnose/deep_figures.h"

/* Measures nodes by jobs in the queue: one for the free nodes with GPUs, and one for the free nodes without. Each takes all GPUs, or
 * all slots, of its nodes, so no job can start beside it there. A node that runs a job is left out. */

struct deep_ask {
    char *const *only; /* names of nodes; NULL: all */
    const struct job_spec
        *job; /* only nodes that this job could use, and on the devices that it would use; NULL: all */
    char *const *env; /* for the ranks; or NULL */
    int64_t measure_ms;
};
struct deep_skipped {
    char *node, *why; /* "runs job 9" */
};
struct deep_result {
    struct deep_figures figures;
    struct deep_skipped *skipped;
    size_t skipped_count, skipped_cap;
    size_t measured; /* nodes */
    int64_t jobs[2];
    size_t job_count;
    char *unfinished[2]; /* of each job: what is missing although its devices were measured; NULL: nothing */
};

/* CANCELLED: the user has interrupted it (client/interrupts.h), and the job is cancelled. FAILED_PRECONDITION: a job could not start,
 * or has failed. */
MUST_CHECK enum err_code deep_run(struct link *link, const struct deep_ask *ask, struct deep_result *out,
                                  struct err *e);
void deep_result_release(struct deep_result *r); /* for CLEANUP too */

#endif
