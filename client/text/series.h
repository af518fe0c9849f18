#ifndef DDP_CLIENT_TEXT_SERIES_H
#define DDP_CLIENT_TEXT_SERIES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* A metric of a job over its steps. If a step was repeated after a restart, or if several ranks report the
 * metric, the newest value of the lowest rank counts. */

struct series {
    int64_t *steps; /* ascending */
    double *values;
    size_t count;
};
void series_take(struct series *out, const Ddp__V1__GetMetricsReply *reply, const char *name);
void series_release(struct series *s);

/* Compares two jobs by the digests of their parameters, at the steps that both reported. */
struct series_difference {
    size_t compared;     /* number of steps that both reported, up to the first difference */
    int64_t last_same;   /* the last step where they agree before that; -1: there is none */
    bool differ;         /* they differ at some step */
    int64_t step;        /* the first step where they differ */
    uint64_t digests[2]; /* at that step */
};
/* high and low: the upper and lower 32 bits of each job's digests, as two metrics. */
void series_compare(struct series_difference *out, const struct series high[2], const struct series low[2]);
/* "#7 and #9 differ at step 1,210: ..." */
void series_print_difference(const struct series_difference *p, const int64_t jobs[2], struct buf *out);

#endif
