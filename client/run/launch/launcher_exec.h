#ifndef DDP_CLIENT_RUN_LAUNCH_LAUNCHER_EXEC_H
#define DDP_CLIENT_RUN_LAUNCH_LAUNCHER_EXEC_H

#include "client/run/launch/remote_launch.h"

/* srun and mpirun: this process becomes the launcher. Returns ddpctl's exit code, and only if that failed. */
int launcher_exec(const struct remote_launch *launch);

#endif
