#ifndef DDP_CLIENT_RUN_RUN_LOGS_H
#define DDP_CLIENT_RUN_RUN_LOGS_H

#include "base/json.h"
#include "proto/ddp.pb-c.h"

/* The log tree of a run as torchrun lays it, and the error files in it:
 *   LOG_DIR/RUN_ID_xxxxxx/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}
 * attempt_N is a link to where the agent keeps the generation N + 1, so no attempt takes another's place. */

/* Makes a directory for this run alone below dir. *out: its absolute path; the caller frees. */
MUST_CHECK enum err_code run_logs_claim(const char *dir, const char *run_id, char **out, struct err *e);
/* Links attempt_<generation - 1>; logs: the agent's log directory. What cannot be linked is not. */
void run_logs_attempt(const char *logs, int64_t job, int64_t generation, const char *node);

/* The error file of the rank whose error came first. */
struct run_error {
    int rank;       /* -1: no rank of this node has left one */
    double seconds; /* since 1970, of the error; by the worker's own clock, mostly whole seconds */
    char *message;  /* its first line */
    json_t *file;
};
/* Of the job's ranks on the node. dir: of the generation's node, with a directory for each local rank. */
void run_error_find(struct run_error *out, const Ddp__V1__JobStatus *job, const char *node, const char *dir);
void run_error_release(struct run_error *error);
/* Writes it, with the failure's exit code in message.errorCode, to path: the error file that whoever started
 * ddpctl looks at. Without an error file it tells the failure itself. */
MUST_CHECK enum err_code run_error_copy(const struct run_error *error, const Ddp__V1__Failure *failure,
                                        const char *path, struct err *e);

#endif
