#ifndef DDP_DAEMON_AGENT_SUPERVISOR_LAUNCH_H
#define DDP_DAEMON_AGENT_SUPERVISOR_LAUNCH_H

#include <sys/types.h>

#include "daemon/agent/supervisors.h"

/* Starts ddp-supervisor by posix_spawn with a control connection; *fd is the agent's end. Only for
 * supervisors.c. */
MUST_CHECK enum err_code supervisor_launch(const struct supervisors_options *options, int64_t job,
                                           const char *dir, int *fd, pid_t *pid, struct err *e);

#endif
