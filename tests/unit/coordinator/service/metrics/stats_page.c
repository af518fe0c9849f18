/* Prints a page of /metrics on which every series is there, for the test that holds documents and the dashboard against
 * the page. With an argument: as OpenMetrics. Names of a job and its user hold the characters that must be escaped. */
#include <stdio.h>

#include "base/mem.h"
#include "daemon/coordinator/service/metrics/openmetrics.h"
#include "daemon/coordinator/service/metrics/stats.h"

int main(int argc, char **argv)
{
    struct stats s = {.relays = {.relays = {{"coordinator", 12, 1}}, .count = 1},
                      .hooks = {.hooks = {{.name = "night-shift", .waiting = 2}}, .count = 1},
                      .backup_age_s = 3};
    const struct core_totals totals = {.jobs = {[JOB_RUNNING] = 1}, .slots = 16};
    const struct core_gpu gpu = {.index = 3,
                                 .memory_bytes = 1LL << 36,
                                 .memory_used = 1LL << 30,
                                 .temperature = 60,
                                 .power_watts = 500,
                                 .utilisation = 0.5};
    struct core_gpu_use use = {"box1", &gpu, 9};
    struct stats_job job = {.id = 9, .name = "a\"b\\c\nd", .user = "ana", .restarts = 1, .running_s = 60};
    struct stats_jobs jobs = {.jobs = &job, .gpus = &use, .job_count = 1, .gpu_count = 1};
    CLEANUP(buf_release) struct buf text = {0}, open = {0};

    (void)argv;
    job.sums = (struct core_job_sums){
        .ranks = 8, .gpus = 8, .loss = 1.5, .step = 10, .steps = 100, .steps_per_s = 2};
    for (int i = 0; i < USAGE_METRICS; i++)
        job.sums.usage.values[i] = i;
    stats_commit(&s, 1000, 1);
    stats_call(&s, "ddp.v1.Cluster", "GetJob");
    stats_print(&s, &totals, &jobs, 1, &text);
    openmetrics_print(text.data, &open);
    return fputs(argc > 1 ? open.data : text.data, stdout) < 0;
}
