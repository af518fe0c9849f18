#ifndef DDP_CLIENT_RUN_TORCHRUN_H
#define DDP_CLIENT_RUN_TORCHRUN_H

#include "client/run/run_request.h"

/* Reads torchrun's options and PET_* variables into a run request. tail: the script or command with its
 * arguments; NULL: there is a job file. PET_* variables fill the options that were not typed. A warning line
 * for each option that has no effect here is appended to talk. */
MUST_CHECK enum err_code torchrun_read(struct run_request *r, struct run_options *options, char *const *tail,
                                       char *const *env, struct buf *talk, struct err *e);

#endif
