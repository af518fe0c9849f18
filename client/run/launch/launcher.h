#ifndef DDP_CLIENT_RUN_LAUNCH_LAUNCHER_H
#define DDP_CLIENT_RUN_LAUNCH_LAUNCHER_H

#include "client/run/batch/batch_allocation.h"
#include "client/run/run_request.h"

/* The program that starts ddpctl on the other hosts: --launcher, or what `auto` chooses. */
enum launcher { LAUNCHER_NONE, LAUNCHER_SRUN, LAUNCHER_PBSDSH, LAUNCHER_SSH, LAUNCHER_MPIRUN };

/* *out is NONE if this process has nothing to start, as when a launcher started it. on_path: whether a
 * program can be found; tests pass their own. INVALID_ARGUMENT: `auto` has nothing to choose by, or the
 * options contradict each other. */
MUST_CHECK enum err_code launcher_choose(const struct run_request *r, const struct batch_allocation *a,
                                         bool (*on_path)(const char *program), enum launcher *out,
                                         struct err *e);

#endif
