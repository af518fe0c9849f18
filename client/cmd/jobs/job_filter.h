#ifndef DDP_CLIENT_CMD_JOBS_JOB_FILTER_H
#define DDP_CLIENT_CMD_JOBS_JOB_FILTER_H

#include <stdbool.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Which jobs `ddpctl status` lists: --mine, --state, --since. */
struct job_filter {
    const char *user;  /* only this user's jobs; NULL: everybody's */
    const char *state; /* "running,queued": only jobs in one of these states; NULL: any */
    int64_t since_ms;  /* wall clock: no jobs that had ended before; 0: any */
};
/* INVALID_ARGUMENT: a state that jobs do not have. */
MUST_CHECK enum err_code job_filter_check(const char *state, struct err *e);
bool job_filter_keeps(const struct job_filter *filter, const Ddp__V1__JobStatus *job);

#endif
