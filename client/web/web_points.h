#ifndef DDP_CLIENT_WEB_WEB_POINTS_H
#define DDP_CLIENT_WEB_WEB_POINTS_H

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* The points of a job's curves as a page needs them. Any thread. */

/* Leaves out points of the reply, in place: those of other metrics than names ("loss,val_loss"; NULL: all), those before
 * from_step, and of each series those that a picture of so many buckets does not need (base/thinning.h; 0: all remain).
 * The order stays. */
void web_points_choose(Ddp__V1__GetMetricsReply *reply, const char *names, int64_t from_step, size_t buckets);
/* {"job":9,"series":[{"name":"loss","rank":0,"step":[...],"time_ms":[...],"value":[...]}]}: a third of the bytes. */
void web_points_print_series(const Ddp__V1__GetMetricsReply *reply, int64_t job, struct buf *out);

#endif
