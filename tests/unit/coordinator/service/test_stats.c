/* What /metrics says: buckets add up, counters count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/service/stats.h"

static void has(const struct buf *text, const char *line)
{
    if (!strstr(text->data, line))
        fail_msg("no line '%s' in\n%s", line, text->data);
}

static void latencies_fall_into_buckets(void **state)
{
    struct stats s = {0};
    struct core_totals totals = {0};
    CLEANUP(buf_release) struct buf text = {0};
    (void)state;
    stats_commit(&s, 50 * 1000, 3);            /* 50 us */
    stats_commit(&s, 100 * 1000, 1);           /* on the bound: in its bucket */
    stats_commit(&s, 2 * 1000 * 1000, 1);      /* 2 ms */
    stats_commit(&s, 10LL * 1000000000LL, 10); /* past the last bound */
    stats_print(&s, &totals, 7, &text);
    has(&text, "ddp_commit_seconds_bucket{le=\"0.0001\"} 2\n");
    has(&text, "ddp_commit_seconds_bucket{le=\"0.001\"} 2\n");
    has(&text, "ddp_commit_seconds_bucket{le=\"0.0025\"} 3\n");
    has(&text, "ddp_commit_seconds_bucket{le=\"2.5\"} 3\n");
    has(&text, "ddp_commit_seconds_bucket{le=\"+Inf\"} 4\n");
    has(&text, "ddp_commit_seconds_count 4\n");
    has(&text, "ddp_commit_seconds_sum 10.00215\n");
    has(&text, "ddp_changes_total 15\n");
    has(&text, "ddp_epoch 7\n");
}

static void calls_are_counted_by_method(void **state)
{
    struct stats s = {0};
    struct core_totals totals = {.jobs = {[JOB_RUNNING] = 4}, .slots = 16};
    CLEANUP(buf_release) struct buf text = {0};
    (void)state;
    for (int i = 0; i < 3; i++)
        stats_call(&s, "ddp.v1.Cluster", "SubmitJob");
    stats_call(&s, "ddp.v1.Rendezvous", "Join");
    stats_print(&s, &totals, 1, &text);
    has(&text, "ddp_rpc_calls_total{method=\"Cluster/SubmitJob\"} 3\n");
    has(&text, "ddp_rpc_calls_total{method=\"Rendezvous/Join\"} 1\n");
    has(&text, "ddp_jobs{state=\"running\"} 4\n");
    has(&text, "ddp_jobs{state=\"queued\"} 0\n");
    has(&text, "ddp_cpu_slots 16\n");
    has(&text, "process_resident_memory_bytes ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latencies_fall_into_buckets),
        cmocka_unit_test(calls_are_counted_by_method),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
