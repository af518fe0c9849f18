#ifndef DDP_CLIENT_RUN_RUN_ERROR_H
#define DDP_CLIENT_RUN_RUN_ERROR_H

#include "base/json.h"
#include "proto/ddp.pb-c.h"

/* The error files that workers leave (error.json, as torchrun's workers write it): which error came first. */

/* The error file of the rank whose error came first by its timestamp. */
struct run_error {
    int rank;       /* -1: no rank of this node left an error file */
    double seconds; /* time of the error since 1970, by the worker's clock, usually whole seconds */
    char *message;  /* its first line */
    json_t *file;
};
/* Looks at the job's ranks on the node. dir: the generation's log directory, which has a directory for each
 * local rank. */
void run_error_find(struct run_error *out, const Ddp__V1__JobStatus *job, const char *node, const char *dir);
void run_error_release(struct run_error *error);
/* Writes the error to path, the error file that the program that started ddpctl reads, with the failure's
 * exit code in message.errorCode. If no rank left an error file, it writes one that describes the failure. */
MUST_CHECK enum err_code run_error_copy(const struct run_error *error, const Ddp__V1__Failure *failure,
                                        const char *path, struct err *e);

#endif
