#ifndef DDP_DAEMON_SUPERVISOR_HOLD_H
#define DDP_DAEMON_SUPERVISOR_HOLD_H

#include <stddef.h>

#include "base/err.h"

/* Reserves ports and GPUs of the machine against other clusters and other `ddpctl run`s on this machine, of
 * which our coordinator knows nothing. The kernel drops a hold when its holder dies. */

/* Binds the abstract socket "ddp-port-N" and tries to bind the TCP port. ALREADY_EXISTS: the port is in use,
 * and another one must be leased. */
MUST_CHECK enum err_code hold_port(int port, int *fd, struct err *e);

#define HOLD_GPUS_MAX 64 /* the most that a job file may give a worker */
#define HOLD_FDS (2 * HOLD_GPUS_MAX + 1)
/* Takes a lock file for each GPU, by UUID. A worker that has the GPU alone locks it exclusively. Where
 * `slots` workers share a GPU, each takes a shared lock on it and an exclusive one on one of `slots` further
 * files, so that neither too many workers nor an exclusive user can join. ALREADY_EXISTS: another job of this
 * machine uses the GPU. fds end with -1. */
MUST_CHECK enum err_code hold_gpus(char *const *uuids, int slots, int fds[HOLD_FDS], struct err *e);
/* Opens the directory for lock files: the first of these that all users may write. -1: none. */
int hold_open_dir(const char *const *places, size_t count);
void hold_drop(int *fds); /* closes all up to the -1 */

#endif
