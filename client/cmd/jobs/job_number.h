#ifndef DDP_CLIENT_CMD_JOBS_JOB_NUMBER_H
#define DDP_CLIENT_CMD_JOBS_JOB_NUMBER_H

#include <stdint.h>

#include "base/err.h"

MUST_CHECK enum err_code job_number_parse(const char *text, int64_t *job, struct err *e); /* "9" or "#9" */
MUST_CHECK enum err_code job_rank_parse(const char *text, int64_t *rank,
                                        struct err *e); /* the value of --rank */
/* The number of nodes of `resize`: "3" or "1:4". */
MUST_CHECK enum err_code nodes_range_parse(const char *text, int32_t *min, int32_t *max, struct err *e);

#endif
