#include "client/job_probe.h"

#include <string.h>

void *job_probe_failure(struct link *link, const Ddp__V1__JobStatus *job)
{
    Ddp__V1__ProbeJobRequest request = DDP__V1__PROBE_JOB_REQUEST__INIT;
    void *reply = NULL;
    struct err ignored;
    if (strcmp(job->state, "failed") != 0 || !job->failure || job->world_size < 2)
        return NULL;
    request.job = job->job;
    return link_call(link, "ProbeJob", &request, &reply, 0, &ignored) == ERR_OK ? reply : NULL;
}
