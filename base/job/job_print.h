#ifndef DDP_BASE_JOB_JOB_PRINT_H
#define DDP_BASE_JOB_JOB_PRINT_H

#include "base/buf.h"
#include "base/job/job.h"

/* A job as the text of a job file. */

void job_train_print(struct buf *out, const struct train_spec *train);
void job_quote(struct buf *out, const char *text); /* double-quoted YAML */

#endif
