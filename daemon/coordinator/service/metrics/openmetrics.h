#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_OPENMETRICS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_OPENMETRICS_H

#include "base/buf.h"

#define OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Whether a client with this Accept header (NULL: none) can read OpenMetrics. */
bool openmetrics_accepted(const char *accept);

/* Appends to out a page of Prometheus' text format 0.0.4, whole lines in `text`, as OpenMetrics 1.0: the families of counters are
 * named without _total, and the page has a last line. Samples are the same in both. */
void openmetrics_print(const char *text, struct buf *out);

#endif
