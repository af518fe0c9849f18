#ifndef DDP_STORE_METRICS_H
#define DDP_STORE_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/metric.h"

/* What jobs reported: <dir>/metrics.db, apart from the durable state and not fsynced; losing the last seconds
 * in a power cut is fine. A point is one number of one rank at one step; a step done again after a restart
 * replaces it. Each (job, name, rank) keeps at most METRICS_SERIES_MAX points: past that every second one
 * goes, so the curve stays whole and gets coarser. One thread at a time. */
#define METRICS_SERIES_MAX 8192
#define METRICS_BYTES_MAX (512LL << 20) /* of all series; past it the oldest jobs' go */

struct metrics;
struct metric_point {
    int64_t job, step, time_ms;
    int rank;
    struct metric metric;
};

/* A file that is no database any more is moved aside to metrics.db.bad and a fresh one made: it is not worth
 * a coordinator that does not start. */
MUST_CHECK enum err_code metrics_open(struct metrics **out, const char *dir, struct err *e);
void metrics_close(struct metrics *m);

/* In one transaction; on an error none of them is kept. */
MUST_CHECK enum err_code metrics_append(struct metrics *m, const struct metric_point *points, size_t count,
                                        struct err *e);
/* By name, rank, step; name NULL: all; limit 0: no limit, else the newest `limit` steps of each series. The caller frees
 * *out. */
MUST_CHECK enum err_code metrics_read(struct metrics *m, int64_t job, const char *name, size_t limit,
                                      struct metric_point **out, size_t *count, struct err *e);
/* Drops series, the oldest jobs' first, until what is left takes at most so many bytes; metrics_append does
 * it now and then by itself, with METRICS_BYTES_MAX. */
MUST_CHECK enum err_code metrics_trim(struct metrics *m, int64_t bytes, struct err *e);
MUST_CHECK enum err_code metrics_forget(struct metrics *m, int64_t job, struct err *e);

#endif
