#ifndef DDP_CLIENT_CMD_JOBS_SINCE_H
#define DDP_CLIENT_CMD_JOBS_SINCE_H

#include <stdint.h>

#include "base/err.h"

#define SINCE_HELP "start 2h or 7d ago, or at local time 2026-11-30 or \"2026-11-30 14:00\""

/* The value of --since as wall clock in ms, at least 1. */
MUST_CHECK enum err_code since_parse(const char *text, int64_t *ms, struct err *e);

#endif
