#ifndef DDP_BASE_JOB_JOB_TUNE_H
#define DDP_BASE_JOB_JOB_TUNE_H

#include "base/job/job.h"

/* The keys of a train job that can change while it runs: those that need no other memory, data or world. Values of
 * `train` change on all ranks between the same two steps; the others belong to the coordinator. */

struct job_change {
    const char *key; /* as users write it: "optimizer.lr" */
    char *from, *to; /* "auto": an outer optimizer that the job file does not have */
};

struct job_tuned {
    char *text;           /* the new job file */
    struct job_spec spec; /* what it says */
    struct job_change *changes;
    size_t count; /* 0: the job has these values already */
    bool train;   /* a value of `train` has changed */
};
/* Applies assignments (NULL-terminated) such as "optimizer.lr=1e-4" or "train.sync.every=200" to the text of a train job.
 * INVALID_ARGUMENT: an unknown key, or an invalid value; FAILED_PRECONDITION: this key, or this value, cannot be set while
 * the job runs. */
MUST_CHECK enum err_code job_tune(struct job_tuned *out, const char *text, char *const *assignments,
                                  struct err *e);
void job_tuned_release(struct job_tuned *tuned);

/* The keys that a job has, and their values. The caller frees with job_changes_free. `to` is NULL. */
struct job_change *job_tunable(const struct job_spec *spec, size_t *count);
void job_changes_free(struct job_change *changes, size_t count);

/* Takes over the values of these keys from another version of the same job. Returns true if one below `sync` has
 * changed. */
bool job_tune_copy(struct job_spec *to, const struct job_spec *from);

#endif
