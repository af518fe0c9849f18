#ifndef DDP_CLIENT_RUN_HOSTS_HOST_GROUP_H
#define DDP_CLIENT_RUN_HOSTS_HOST_GROUP_H

#include "client/cmd/command.h"
#include "client/run/run_options.h"
#include "client/run/run_request.h"

/* `ddpctl run` on several hosts: they meet at the request's endpoint and run the job together, and each
 * ddpctl stays until the job has ended. text and spec: the job as this host has it. Returns ddpctl's exit
 * code. */
int host_group_run(const struct globals *globals, const struct run_request *request, const char *text,
                   const struct job_spec *spec, const struct run_options *options);

#endif
