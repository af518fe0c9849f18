#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_METRICS_SHARES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_METRICS_SHARES_H

#include <stddef.h>

#include "store/metrics.h"

/* Drops points until at most `most` are left, and returns how many are left. Their order stays. What a job's program reported
 * is one source of points, and what nodes measured of it is another. A source that has at most an equal share keeps all its
 * points, and what it does not need is shared by the others, which keep their newest. So a job that reports very often costs
 * other jobs nothing. With more sources than `most`, none keeps any. No state. */
size_t metrics_shares_cut(struct metric_point *points, size_t count, size_t most);

#endif
