#ifndef DDP_CLIENT_SCREEN_SERIES_H
#define DDP_CLIENT_SCREEN_SERIES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* A metric of a job over its steps. Where a step was done again, or several ranks report the same metric,
 * the newest value of the lowest rank counts. */

struct series {
    int64_t *steps; /* rising */
    double *values;
    size_t count;
};
void series_take(struct series *out, const Ddp__V1__GetMetricsReply *reply, const char *name);
void series_release(struct series *s);

/* Two runs by the digests of their parameters, at the steps that both reported. */
struct parting {
    size_t compared;
    int64_t last_same; /* -1: none before the first that differs */
    bool parted;
    int64_t step; /* the first where they differ */
    uint64_t digests[2];
};
/* high and low: both halves of each run's. */
void series_compare(struct parting *out, const struct series high[2], const struct series low[2]);
/* "#7 and #9 part at step 1,210: ..." */
void series_print_parting(const struct parting *p, const int64_t jobs[2], struct buf *out);

#endif
