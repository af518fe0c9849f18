#ifndef DDP_CLIENT_RUN_HOSTS_H
#define DDP_CLIENT_RUN_HOSTS_H

#include "client/cmd/command.h"
#include "client/run/launch.h"

/* `ddpctl run` typed on several hosts: they meet at the launch's endpoint, run the job together, and each
 * stays until it has ended. text and spec are of the job as this host has it. Returns ddpctl's exit code. */
int hosts_run(const struct globals *globals, const struct launch *launch, const char *text,
              const struct job_spec *spec, bool quiet);

#endif
