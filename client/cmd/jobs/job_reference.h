#ifndef DDP_CLIENT_CMD_JOBS_JOB_REFERENCE_H
#define DDP_CLIENT_CMD_JOBS_JOB_REFERENCE_H

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* How users name jobs: 9 or #9; 3-5, the jobs in that range that exist; `last`, the newest job that the user has
 * submitted; a name. A name is that of the only job of this name that has not ended, or else of the only one that
 * has. */

enum reference_kind { REFERENCE_NUMBER, REFERENCE_RANGE, REFERENCE_LAST, REFERENCE_NAME };
struct job_reference {
    enum reference_kind kind;
    const char *text;    /* as typed; borrowed */
    int64_t first, last; /* number: both the same; range */
};
/* INVALID_ARGUMENT: it cannot name a job. */
MUST_CHECK enum err_code job_reference_parse(const char *text, struct job_reference *out, struct err *e);

/* Numbers of jobs in the order in which they were named, each once. Zeroed, it is empty. */
struct job_numbers {
    int64_t *list;
    size_t count, cap;
};
void job_numbers_add(struct job_numbers *numbers, int64_t job);
void job_numbers_remove(struct job_numbers *numbers, size_t index);
void job_numbers_release(struct job_numbers *numbers);

/* Adds the jobs that the reference means to `out`. jobs: all that exist, by number, unless the reference is a number.
 * user: who types. NOT_FOUND: there is none. INVALID_ARGUMENT: several jobs have the name; the message lists them. */
MUST_CHECK enum err_code job_reference_resolve(const struct job_reference *reference,
                                               Ddp__V1__JobStatus *const *jobs, size_t count,
                                               const char *user, struct job_numbers *out, struct err *e);
/* Fails unless there is exactly one job: "logs takes one job, but '3-5' means 3: 3, 4 and 5". */
MUST_CHECK enum err_code job_numbers_only(const struct job_numbers *numbers, const char *command,
                                          const char *text, struct err *e);

#endif
