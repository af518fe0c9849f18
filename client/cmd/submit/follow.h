#ifndef DDP_CLIENT_CMD_SUBMIT_FOLLOW_H
#define DDP_CLIENT_CMD_SUBMIT_FOLLOW_H

#include "client/connect.h"

/* Follows the job until it ends: prints the progress of a train job to stdout, or the output of a command to stdout and
 * stderr as `run` does. ^C detaches: the job continues. *exit_code is that of `ddpctl wait`, or 128 + the signal that
 * detached (SIGPIPE if nobody reads stdout any more). Returns UNAVAILABLE only if the coordinator has never answered. */
MUST_CHECK enum err_code follow_job(struct link *link, int64_t job, int *exit_code, struct err *e);

#endif
