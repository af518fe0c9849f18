#include "daemon/coordinator/service/metrics/stats.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

const double stats_bounds[STATS_BUCKETS] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                            0.01,   0.025,   0.05,   0.1,   0.5,    2.5};

void stats_commit(struct stats *s, int64_t nanoseconds, size_t changes)
{
    const double seconds = (double)nanoseconds * 1e-9;
    size_t i = 0;
    while (i < STATS_BUCKETS && seconds > stats_bounds[i])
        i++;
    if (i < STATS_BUCKETS)
        s->latency_buckets[i]++;
    else
        s->latency_over++;
    s->latency_sum += seconds;
    s->commits++;
    s->changes += changes;
}

void stats_call(struct stats *s, const char *service, const char *method)
{
    char name[sizeof s->methods[0].name];
    const char *dot = strrchr(service, '.');
    snprintf(name, sizeof name, "%s/%s", dot ? dot + 1 : service, method);
    size_t i = 0;
    while (i < s->method_count && strcmp(s->methods[i].name, name) != 0)
        i++;
    if (i == STATS_METHODS) /* more methods than entries: the table has to grow with the services */
        return;
    if (i == s->method_count) {
        memcpy(s->methods[i].name, name, sizeof name);
        s->method_count++;
    }
    s->methods[i].calls++;
}

static void metric_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metric_gauge(struct buf *out, const char *name, const char *help, double value)
{
    metric_head(out, name, "gauge", help);
    buf_printf(out, "%s %.17g\n", name, value);
}

static void metric_counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
    metric_head(out, name, "counter", help);
    buf_printf(out, "%s %llu\n", name, (unsigned long long)value);
}

static void print_cluster(const struct core_totals *t, struct buf *out)
{
    metric_head(out, "ddp_jobs", "gauge", "Jobs known, by state.");
    for (int i = 0; i <= JOB_CANCELLED; i++)
        buf_printf(out, "ddp_jobs{state=\"%s\"} %lld\n", sm_name(&job_sm, i), (long long)t->jobs[i]);
    metric_gauge(out, "ddp_nodes", "Nodes that can run jobs.", t->nodes);
    metric_gauge(out, "ddp_cpu_slots", "CPU slots of all nodes.", t->slots);
    metric_gauge(out, "ddp_cpu_slots_busy", "CPU slots in use.", t->slots_busy);
    metric_gauge(out, "ddp_gpus", "GPUs of all nodes.", t->gpus);
    metric_gauge(out, "ddp_gpus_busy", "GPUs in use.", t->gpus_busy);
    metric_gauge(out, "ddp_gpus_sick", "GPUs that are not used because they are unhealthy.", t->gpus_sick);
    metric_counter(out, "ddp_generations_total", "Generations formed since the coordinator started.",
                   (uint64_t)t->generations);
    metric_counter(out, "ddp_restarts_total",
                   "Restarts that counted against max_restarts, since the coordinator started.",
                   (uint64_t)t->restarts);
}

static void print_latency(const struct stats *s, struct buf *out)
{
    const char *name = "ddp_commit_seconds";
    uint64_t total = 0;
    metric_head(out, name, "histogram", "Duration of a commit to disk.");
    for (size_t i = 0; i < STATS_BUCKETS; i++) {
        total += s->latency_buckets[i];
        buf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, stats_bounds[i], (unsigned long long)total);
    }
    total += s->latency_over;
    buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)total);
    buf_printf(out, "%s_sum %.9g\n%s_count %llu\n", name, s->latency_sum, name, (unsigned long long)total);
}

static void print_service(const struct stats *s, struct buf *out)
{
    metric_gauge(out, "ddp_oldest_queued_seconds", "Age of the oldest queued job.", s->oldest_queued_s);
    metric_gauge(out, "ddp_agent_sessions", "Connected agents.", (double)s->sessions);
    metric_gauge(out, "ddp_job_watches", "Open calls of users that watch a job.", (double)s->watches);
    metric_gauge(out, "ddp_log_reads", "Log files being read for users.", (double)s->log_reads);
    metric_gauge(out, "ddp_log_copy_bytes", "Memory for copies of the newest output of workers.",
                 (double)s->log_copy_bytes);
    metric_gauge(out, "ddp_pending_changes",
                 "Changes that could not be committed yet; above 0 the database cannot be written.",
                 (double)s->pending_changes);
    metric_gauge(out, "ddp_state_room_bytes", "Free bytes on the disk of the state directory.",
                 (double)s->room_bytes);
    if (s->backup_age_s >= 0)
        metric_gauge(out, "ddp_backup_age_seconds", "Age of the newest backup of the database.",
                     s->backup_age_s);
    metric_counter(out, "ddp_backup_failures_total", "Failed backups of the database.", s->backup_failures);
    metric_counter(out, "ddp_commits_total", "Commits to disk.", s->commits);
    metric_counter(out, "ddp_commit_failures_total", "Commits that failed, including retries.",
                   s->commit_failures);
    metric_counter(out, "ddp_changes_total", "Rows changed by commits.", s->changes);
    metric_counter(out, "ddp_reports_total", "Progress reports received.", s->reports);
    metric_counter(out, "ddp_reports_dropped_total", "Progress reports that agents dropped.",
                   s->reports_dropped);
    metric_counter(out, "ddp_points_dropped_total", "Metric points that were dropped instead of written.",
                   s->points_dropped);
    metric_counter(out, "ddp_refused_calls_total",
                   "Calls refused for lack of permission or because the database cannot be written.",
                   s->refused_calls);
    metric_head(out, "ddp_rpc_calls_total", "counter", "Accepted calls, by method.");
    for (size_t i = 0; i < s->method_count; i++)
        buf_printf(out, "ddp_rpc_calls_total{method=\"%s\"} %llu\n", s->methods[i].name,
                   (unsigned long long)s->methods[i].calls);
}

static void print_traffic(const struct stats *s, struct buf *out)
{
    const struct rpc_traffic *t = &s->traffic;
    metric_gauge(out, "ddp_connections", "Open TCP connections.", (double)t->connections);
    metric_gauge(out, "ddp_connections_unauthenticated",
                 "Open TCP connections that have not shown a token yet.", (double)t->unauthenticated);
    metric_counter(out, "ddp_connections_accepted_total", "Connections accepted.", t->accepted);
    const struct {
        const char *why;
        uint64_t count;
    } dropped[] = {{"limit", t->evicted},
                   {"full", t->refused},
                   {"protocol", t->foreign},
                   {"silent", t->silent},
                   {"abuse", t->abusive}};
    metric_head(out, "ddp_connections_dropped_total", "counter", "Dropped connections, by reason.");
    for (size_t i = 0; i < ARRAY_LEN(dropped); i++)
        buf_printf(out, "ddp_connections_dropped_total{reason=\"%s\"} %llu\n", dropped[i].why,
                   (unsigned long long)dropped[i].count);
    metric_head(
        out, "ddp_deaf_seconds_total", "counter",
        "Time in which the coordinator could not receive messages from its nodes; it does not count as their "
        "silence.");
    buf_printf(out, "ddp_deaf_seconds_total %.3f\n", (double)s->receive_delay_ms / 1e3);
    metric_head(out, "ddp_shut_seconds_total", "counter",
                "Time in which nodes may have been unable to connect.");
    buf_printf(out, "ddp_shut_seconds_total %.3f\n", (double)s->connect_delay_ms / 1e3);
}

static void print_relays(const struct stats_relays *s, struct buf *out)
{
    if (!s->count)
        return;
    metric_head(out, "ddp_relay_bytes_total", "counter",
                "Bytes that a relay has copied between ranks since its daemon was started.");
    for (size_t i = 0; i < s->count; i++)
        buf_printf(out, "ddp_relay_bytes_total{relay=\"%s\"} %llu\n", s->relays[i].name,
                   (unsigned long long)s->relays[i].bytes);
    metric_head(out, "ddp_relay_links", "gauge", "Pairs of ranks that a relay joins.");
    for (size_t i = 0; i < s->count; i++)
        buf_printf(out, "ddp_relay_links{relay=\"%s\"} %llu\n", s->relays[i].name,
                   (unsigned long long)s->relays[i].links);
}

static void print_hooks(const struct stats_hooks *s, struct buf *out)
{
    if (!s->count)
        return;
    metric_head(out, "ddp_hook_messages_total", "counter",
                "Messages that a hook has got, attempts that failed, and messages that were dropped.");
    for (size_t i = 0; i < s->count; i++)
        buf_printf(out,
                   "ddp_hook_messages_total{hook=\"%s\",result=\"delivered\"} %llu\n"
                   "ddp_hook_messages_total{hook=\"%s\",result=\"failed\"} %llu\n"
                   "ddp_hook_messages_total{hook=\"%s\",result=\"dropped\"} %llu\n",
                   s->hooks[i].name, (unsigned long long)s->hooks[i].delivered, s->hooks[i].name,
                   (unsigned long long)s->hooks[i].failed, s->hooks[i].name,
                   (unsigned long long)s->hooks[i].dropped);
    metric_head(out, "ddp_hook_waiting", "gauge", "Messages that a hook has not got yet.");
    for (size_t i = 0; i < s->count; i++)
        buf_printf(out, "ddp_hook_waiting{hook=\"%s\"} %lld\n", s->hooks[i].name,
                   (long long)s->hooks[i].waiting);
}

/* The standard metrics of Prometheus' client libraries. */
static void print_process(struct buf *out)
{
    struct err e;
    CLEANUP(buf_release) struct buf text = {0};
    unsigned long long user = 0, system = 0, start = 0, size = 0;
    long long pages = 0;
    if (file_read("/proc/self/stat", 4096, &text, &e) != ERR_OK)
        return;
    const char *rest = strrchr(text.data, ')');
    if (!rest || sscanf(rest + 1,
                        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d"
                        " %llu %llu %lld",
                        &user, &system, &start, &size, &pages) != 5)
        return;
    const double tick = (double)sysconf(_SC_CLK_TCK);
    metric_head(out, "process_cpu_seconds_total", "counter", "Processor time used.");
    buf_printf(out, "process_cpu_seconds_total %.2f\n", (double)(user + system) / tick);
    metric_gauge(out, "process_resident_memory_bytes", "Resident memory.",
                 (double)pages * (double)sysconf(_SC_PAGESIZE));
    metric_gauge(out, "process_virtual_memory_bytes", "Virtual memory.", (double)size);
    const double up = (double)clock_boot_ms() / 1e3 - (double)start / tick;
    metric_gauge(out, "process_start_time_seconds", "Start, in seconds since 1970.",
                 (double)clock_wall_ms() / 1e3 - up);
}

void stats_print(const struct stats *s, const struct core_totals *totals, const struct stats_jobs *jobs,
                 int64_t epoch, struct buf *out)
{
    metric_head(out, "ddp_build_info", "gauge", "The program's version.");
    buf_printf(out, "ddp_build_info{version=\"%s\"} 1\n", DDP_VERSION);
    metric_gauge(out, "ddp_epoch",
                 "Number of times that a coordinator was started with this state directory.", (double)epoch);
    print_cluster(totals, out);
    stats_jobs_print(jobs, out);
    print_service(s, out);
    print_latency(s, out);
    print_traffic(s, out);
    print_relays(&s->relays, out);
    print_hooks(&s->hooks, out);
    print_process(out);
}
