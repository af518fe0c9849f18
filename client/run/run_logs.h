#ifndef DDP_CLIENT_RUN_RUN_LOGS_H
#define DDP_CLIENT_RUN_RUN_LOGS_H

#include <stdint.h>

#include "base/err.h"

/* The log tree of a run as torchrun lays it, and the error files in it:
 *   LOG_DIR/RUN_ID_xxxxxx/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}
 * attempt_N is a link to where the agent keeps the generation N + 1, so no attempt takes another's place. */

/* Makes a directory for this run alone below dir. *out: its absolute path; the caller frees. */
MUST_CHECK enum err_code run_logs_claim(const char *dir, const char *run_id, char **out, struct err *e);
/* Links attempt_<generation - 1>; logs: the agent's log directory. What cannot be linked is not. */
void run_logs_attempt(const char *logs, int64_t job, int64_t generation, const char *node);

#endif
