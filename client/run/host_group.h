#ifndef DDP_CLIENT_RUN_HOST_GROUP_H
#define DDP_CLIENT_RUN_HOST_GROUP_H

#include "client/cmd/command.h"
#include "client/run/run_request.h"

/* `ddpctl run` typed on several hosts: they meet at the launch's endpoint, run the job together, and each
 * stays until it has ended. text and spec are of the job as this host has it. Returns ddpctl's exit code. */
int host_group_run(const struct globals *globals, const struct run_request *request, const char *text,
                   const struct job_spec *spec, bool quiet);

#endif
