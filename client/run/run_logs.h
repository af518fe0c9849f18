#ifndef DDP_CLIENT_RUN_RUN_LOGS_H
#define DDP_CLIENT_RUN_RUN_LOGS_H

#include <stdint.h>

#include "base/err.h"

/* The log tree of a run, with torchrun's layout:
 *   LOG_DIR/RUN_ID_xxxxxx/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}
 * attempt_N is a symbolic link to the agent's directory of generation N + 1. */

/* Makes a directory for this run below dir. *out: its absolute path; the caller frees. */
MUST_CHECK enum err_code run_logs_claim(const char *dir, const char *run_id, char **out, struct err *e);
/* Makes the link attempt_<generation - 1>. logs: the agent's log directory. A failure is ignored, since the
 * files can be found without the link. */
void run_logs_attempt(const char *logs, int64_t job, int64_t generation, const char *node);

#endif
