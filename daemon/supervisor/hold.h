#ifndef DDP_DAEMON_SUPERVISOR_HOLD_H
#define DDP_DAEMON_SUPERVISOR_HOLD_H

#include <stddef.h>

#include "base/err.h"

/* What a spawn holds of its machine, against every other cluster and `ddpctl run` there. The kernel drops a
 * hold when its holder dies. */

/* The abstract socket "ddp-port-N", and a trial bind of the TCP port. ALREADY_EXISTS: taken; lease another
 * port. */
MUST_CHECK enum err_code hold_port(int port, int *fd, struct err *e);

#define HOLD_GPUS_MAX 64 /* as many as a job file may give a worker */
#define HOLD_FDS (2 * HOLD_GPUS_MAX + 1)
/* A flock a device, by UUID; where `slots` workers share one, a shared flock and one of so many further ones.
 * So who wants the GPU alone and who shares it do not meet on it. ALREADY_EXISTS: in use by another job of
 * this machine. fds end with -1. */
MUST_CHECK enum err_code hold_gpus(char *const *uuids, int slots, int fds[HOLD_FDS], struct err *e);
int hold_open_dir(const char *const *places, size_t count); /* where the locks are; -1: nowhere */
void hold_drop(int *fds);                                   /* closes up to the -1 */

#endif
