/* The page at /metrics: buckets are cumulative, calls are counted by method. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/service/metrics/stats.h"

static void page_has_line(const struct buf *text, const char *line)
{
    if (!strstr(text->data, line))
        fail_msg("no line '%s' in\n%s", line, text->data);
}

static void latencies_fall_into_buckets(void **state)
{
    struct stats s = {0};
    struct core_totals totals = {0};
    const struct stats_jobs jobs = {0};
    CLEANUP(buf_release) struct buf text = {0};
    (void)state;
    stats_commit(&s, 50 * 1000, 3);            /* 50 us */
    stats_commit(&s, 100 * 1000, 1);           /* a value on the bound belongs to its bucket */
    stats_commit(&s, 2 * 1000 * 1000, 1);      /* 2 ms */
    stats_commit(&s, 10LL * 1000000000LL, 10); /* above the last bound */
    stats_print(&s, &totals, &jobs, 7, &text);
    page_has_line(&text, "ddp_commit_seconds_bucket{le=\"0.0001\"} 2\n");
    page_has_line(&text, "ddp_commit_seconds_bucket{le=\"0.001\"} 2\n");
    page_has_line(&text, "ddp_commit_seconds_bucket{le=\"0.0025\"} 3\n");
    page_has_line(&text, "ddp_commit_seconds_bucket{le=\"2.5\"} 3\n");
    page_has_line(&text, "ddp_commit_seconds_bucket{le=\"+Inf\"} 4\n");
    page_has_line(&text, "ddp_commit_seconds_count 4\n");
    page_has_line(&text, "ddp_commit_seconds_sum 10.00215\n");
    page_has_line(&text, "ddp_changes_total 15\n");
    page_has_line(&text, "ddp_epoch 7\n");
}

static void calls_are_counted_by_method(void **state)
{
    struct stats s = {.relays = {.relays = {{"coordinator", 12, 1}, {"box3", 7, 0}}, .count = 2}};
    struct core_totals totals = {.jobs = {[JOB_RUNNING] = 4}, .slots = 16};
    const struct stats_jobs jobs = {0};
    CLEANUP(buf_release) struct buf text = {0};
    (void)state;
    for (int i = 0; i < 3; i++)
        stats_call(&s, "ddp.v1.Cluster", "SubmitJob");
    stats_call(&s, "ddp.v1.Rendezvous", "Join");
    stats_print(&s, &totals, &jobs, 1, &text);
    page_has_line(&text, "ddp_rpc_calls_total{method=\"Cluster/SubmitJob\"} 3\n");
    page_has_line(&text, "ddp_rpc_calls_total{method=\"Rendezvous/Join\"} 1\n");
    page_has_line(&text, "ddp_jobs{state=\"running\"} 4\n");
    page_has_line(&text, "ddp_jobs{state=\"queued\"} 0\n");
    page_has_line(&text, "ddp_cpu_slots 16\n");
    page_has_line(&text, "ddp_relay_bytes_total{relay=\"coordinator\"} 12\n");
    page_has_line(&text, "ddp_relay_bytes_total{relay=\"box3\"} 7\n");
    page_has_line(&text, "ddp_relay_links{relay=\"coordinator\"} 1\n");
    page_has_line(&text, "process_resident_memory_bytes ");
}

/* A job's name is checked, a user's is not. */
static void running_jobs_have_series_with_escaped_labels(void **state)
{
    const struct stats s = {0};
    const struct core_totals totals = {0};
    const struct core_gpu gpus[] = {{.index = 2, .utilisation = 0.25, .power_watts = 300},
                                    {.index = 3, .unmeasured = true}};
    struct core_gpu_use uses[] = {{"box1", &gpus[0], 9}, {"box1", &gpus[1], 9}};
    struct stats_job job = {
        .id = 9, .name = "kjv", .user = "a\\\"\n", .sums = {.ranks = 8, .gpus = 2, .loss = NAN}};
    const struct stats_jobs jobs = {
        .jobs = &job, .gpus = uses, .job_count = 1, .gpu_count = 2, .jobs_left_out = 3};
    CLEANUP(buf_release) struct buf text = {0};

    (void)state;
    for (int i = 0; i < USAGE_METRICS; i++)
        job.sums.usage.values[i] = NAN;
    job.sums.usage.values[USAGE_CPU] = 7.5;
    stats_print(&s, &totals, &jobs, 1, &text);
    page_has_line(&text, "ddp_job_ranks{job=\"9\",name=\"kjv\",user=\"a\\\\\\\"\\n\"} 8\n");
    page_has_line(&text, "ddp_job_cpu_cores{job=\"9\",name=\"kjv\",user=\"a\\\\\\\"\\n\"} 7.5\n");
    page_has_line(&text, "ddp_gpu_utilisation{node=\"box1\",gpu=\"2\",job=\"9\"} 0.25\n");
    page_has_line(&text, "ddp_job_series_left_out 3\n");
    assert_null(strstr(text.data, "ddp_job_loss{")); /* not known: no sample, and no NaN */
    assert_null(strstr(text.data, "ddp_job_memory_bytes{"));
    assert_null(strstr(text.data, "ddp_gpu_utilisation{node=\"box1\",gpu=\"3\""));
    assert_null(strstr(text.data, "ddp_gpu_celsius{"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latencies_fall_into_buckets),
        cmocka_unit_test(calls_are_counted_by_method),
        cmocka_unit_test(running_jobs_have_series_with_escaped_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
