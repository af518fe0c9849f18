#ifndef DDP_DAEMON_SUPERVISOR_HOLD_H
#define DDP_DAEMON_SUPERVISOR_HOLD_H

#include "base/err.h"

/* What a spawn holds of its machine, against every other cluster and `ddpctl run` there. The kernel drops a
 * hold when its holder dies. */

/* The abstract socket "ddp-port-N", and a trial bind of the TCP port. ALREADY_EXISTS: taken; lease another
 * port. */
MUST_CHECK enum err_code hold_port(int port, int *fd, struct err *e);

#define HOLD_GPUS_MAX 16
/* A flock a device, by UUID. ALREADY_EXISTS: in use by another job of this machine. fds end with -1. */
MUST_CHECK enum err_code hold_gpus(char *const *uuids, int fds[HOLD_GPUS_MAX + 1], struct err *e);
void hold_drop(int *fds); /* closes up to the -1 */

#endif
