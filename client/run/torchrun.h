#ifndef DDP_CLIENT_RUN_TORCHRUN_H
#define DDP_CLIENT_RUN_TORCHRUN_H

#include "client/run/run_request.h"

/* What the command line and PET_* say. tail: the script or command with its arguments, NULL: a job file.
 * Fills options with PET_*. What cannot mean anything here goes to talk, one warning a line. */
MUST_CHECK enum err_code torchrun_read(struct run_request *r, struct run_options *options, char *const *tail,
                                       char *const *env, struct buf *talk, struct err *e);

#endif
