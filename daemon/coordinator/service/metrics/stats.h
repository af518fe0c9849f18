#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_STATS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/metrics/stats_jobs.h"
#include "proto/rpc_limits.h"

/* Counters of the service, and their page in Prometheus' text format. Loop thread. */

#define STATS_BUCKETS 12
#define STATS_METHODS 64
extern const double stats_bounds[STATS_BUCKETS]; /* seconds, in ascending order */

/* The relays of ranks, by name: "coordinator", or the node's. Further relays are left out. */
struct stats_relays {
    struct stats_relay {
        char name[64];
        uint64_t bytes, links;
    } relays[16];
    size_t count;
};

/* The hooks of coordinator.yaml, and "jobs": the `tell` of all jobs. */
struct stats_hooks {
    struct stats_hook {
        char name[64];
        int64_t waiting;
        uint64_t delivered, failed, dropped;
    } hooks[65];
    size_t count;
};

struct stats {
    uint64_t commits, commit_failures, changes, refused_calls, reports, reports_dropped, points_dropped;
    uint64_t latency_buckets[STATS_BUCKETS]; /* commits above the bound before and up to this one */
    uint64_t latency_over;                   /* commits above the last bound */
    double latency_sum;                      /* seconds */
    struct {
        char name[48]; /* "Cluster/SubmitJob" */
        uint64_t calls;
    } methods[STATS_METHODS];
    size_t method_count;
    size_t sessions, watches, log_reads, log_copy_bytes, pending_changes;
    double oldest_queued_s; /* 0: none */
    double backup_age_s;    /* below 0: there is none */
    uint64_t backup_failures;
    int64_t room_bytes;
    struct rpc_traffic traffic;
    struct stats_relays relays;
    struct stats_hooks hooks;
    uint64_t receive_delay_ms, connect_delay_ms; /* sums since the start; see receive_delay.c */
};

void stats_commit(struct stats *s, int64_t nanoseconds, size_t changes);
void stats_call(struct stats *s, const char *service, const char *method);
/* Appends the whole page to *out. */
void stats_print(const struct stats *s, const struct core_totals *totals, const struct stats_jobs *jobs,
                 int64_t epoch, struct buf *out);

#endif
