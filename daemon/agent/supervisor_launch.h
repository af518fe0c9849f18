#ifndef DDP_DAEMON_AGENT_SUPERVISOR_LAUNCH_H
#define DDP_DAEMON_AGENT_SUPERVISOR_LAUNCH_H

#include <sys/types.h>

#include "daemon/agent/supervisors.h"

/* Starts ddp-supervisor by posix_spawn, connected to us already; *fd is our end. Own folder only. */
MUST_CHECK enum err_code supervisor_launch(const struct supervisors_options *options, int64_t job,
                                           const char *dir, int *fd, pid_t *pid, struct err *e);

#endif
