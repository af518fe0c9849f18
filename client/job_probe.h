#ifndef DDP_CLIENT_JOB_PROBE_H
#define DDP_CLIENT_JOB_PROBE_H

#include "client/connect.h"

/* Asks the coordinator how all ranks of a job that has failed ended, and for their last lines. NULL: the job has not failed,
 * has only one rank, or the coordinator does not answer or refuses. The caller then prints job->failure. Free with rpc_free. */
void *job_probe_failure(struct link *link, const Ddp__V1__JobStatus *job);

#endif
