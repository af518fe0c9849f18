#ifndef DDP_DAEMON_SUPERVISOR_HOLD_H
#define DDP_DAEMON_SUPERVISOR_HOLD_H

#include <stddef.h>

#include "base/err.h"

/* Reserves ports and GPUs of the machine, because other clusters and runs of `ddpctl run` on this machine are unknown
 * to our coordinator. The kernel releases a reservation when its holder dies. */

/* Binds the abstract socket "ddp-port-N" and tries to bind the TCP port. ALREADY_EXISTS: the port is in use,
 * and another one must be leased. */
MUST_CHECK enum err_code hold_port(int port, int *fd, struct err *e);

#define HOLD_GPUS_MAX 64 /* the most that a job file may give a worker */
#define HOLD_FDS (2 * HOLD_GPUS_MAX + 1)
/* Takes a lock file for each GPU, by UUID. A worker that has the GPU alone locks it exclusively. Where `slots` workers
 * share a GPU, each takes a shared lock on it and an exclusive one on one of `slots` further files, so that neither too
 * many workers nor an exclusive user can join. ALREADY_EXISTS: another job of this machine uses the GPU. Other codes:
 * a lock file could not be opened. The list fds ends with -1. */
MUST_CHECK enum err_code hold_gpus(char *const *uuids, int slots, int fds[HOLD_FDS], struct err *e);
/* Opens the directory for lock files: the first of `places` in which all users may write. -1: none. */
int hold_open_dir(const char *const *places, size_t count);
void hold_drop(int *fds); /* closes the list up to the -1 */

#endif
