/* The page at /metrics: buckets are cumulative, calls are counted by method. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/service/stats.h"

static void page_has_line(const struct buf *text, const char *line)
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
    stats_commit(&s, 100 * 1000, 1);           /* a value on the bound belongs to its bucket */
    stats_commit(&s, 2 * 1000 * 1000, 1);      /* 2 ms */
    stats_commit(&s, 10LL * 1000000000LL, 10); /* above the last bound */
    stats_print(&s, &totals, 7, &text);
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
    CLEANUP(buf_release) struct buf text = {0};
    (void)state;
    for (int i = 0; i < 3; i++)
        stats_call(&s, "ddp.v1.Cluster", "SubmitJob");
    stats_call(&s, "ddp.v1.Rendezvous", "Join");
    stats_print(&s, &totals, 1, &text);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latencies_fall_into_buckets),
        cmocka_unit_test(calls_are_counted_by_method),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
