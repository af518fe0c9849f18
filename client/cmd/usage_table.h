#ifndef DDP_CLIENT_CMD_USAGE_TABLE_H
#define DDP_CLIENT_CMD_USAGE_TABLE_H

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* `ddpctl metrics --usage`: a row for each rank with what it used, from the points of docs/reference/metrics.md: means over the
 * time of the run, and of memory and temperature the largest value. Prints nothing if there are no points. The points of a rank and
 * a metric are one after the other, by step. */
void usage_table_print(const Ddp__V1__GetMetricsReply *reply, struct buf *out);

#endif
