#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_METRICS_SHARES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_METRICS_SHARES_H

#include <stddef.h>

#include "store/metrics.h"

/* Drops points until at most `most` are left, and returns how many are left. Keeps their order. The points that the program
 * of a job has reported are one source; the points that nodes have measured of this job are another one. Each source has an
 * equal share of `most`. A source that needs less than its share keeps all its points and leaves the rest of its share to the
 * others. A source with more points keeps its newest ones. So a job that reports very often does not displace the points of
 * other jobs. If there are more sources than `most`, all points are dropped. The function keeps no state. */
size_t metrics_shares_cut(struct metric_point *points, size_t count, size_t most);

#endif
