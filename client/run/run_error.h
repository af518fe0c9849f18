#ifndef DDP_CLIENT_RUN_RUN_ERROR_H
#define DDP_CLIENT_RUN_RUN_ERROR_H

#include "base/json.h"
#include "proto/ddp.pb-c.h"

/* The error files that workers leave (error.json, as torchrun's workers write it): which error came first. */

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
