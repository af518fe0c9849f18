#ifndef DDP_STORE_METRICS_H
#define DDP_STORE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/worker/metric.h"

/* The metrics that jobs reported, or that were read from their output: <dir>/metrics.db. It is separate from the durable state and not synced, so a power
 * cut may lose the last seconds or damage the file. Damage that is found later than in metrics_open makes the other functions fail with
 * DATA_LOSS; metrics_replace then starts a new file. A point is one number of one rank at one step; a repeated step replaces it. Each
 * series (job, name, rank) keeps at most METRICS_SERIES_MAX points. If it has more, points are deleted evenly over its steps:
 * the curve stays complete and becomes coarser. Of memory and temperature (usage_is_peak) the largest values stay. One
 * thread at a time.
 *
 * A series is captured (read from a program's output) or reported by the program. Once it is reported, its own points take
 * the place of the captured ones from its first step on: the two may count steps differently. Captured points of a metric
 * that some rank of the job reports are not added.
 *
 * Each append has a number that is larger than those before, also those of an earlier process. It tells a reader which points it
 * has not read yet, whatever their time and step. */
#define METRICS_SERIES_MAX 8192
#define METRICS_USAGE_MAX                                                                                    \
    1024 /* the same, of what nodes measure (base/worker/usage.h): there are many such series */
#define METRICS_BYTES_MAX (512LL << 20) /* of all series; above it series are deleted: metrics_trim */
#define METRICS_READ_MOST 500000        /* points that one read loads, about 50 MB; see metrics_read */

struct metrics;
struct metric_point {
    int64_t job, step, time_ms;
    int rank;
    bool captured; /* read from the output of the program; after metrics_read: whether its series is */
    struct metric metric;
};

/* A file that is not a database is renamed to metrics.db.bad and replaced by a new one: lost metrics must not keep the
 * coordinator from starting. */
MUST_CHECK enum err_code metrics_open(struct metrics **out, const char *dir, struct err *e);
/* Likewise for a file that turned out to be damaged while it was in use. why: the error that said so. On an error *m is NULL. */
MUST_CHECK enum err_code metrics_replace(struct metrics **m, const char *dir, const char *why, struct err *e);
void metrics_close(struct metrics *m);

/* Adds the points in one transaction: all, or on an error none. */
MUST_CHECK enum err_code metrics_append(struct metrics *m, const struct metric_point *points, size_t count,
                                        struct err *e);
/* Which points are read. */
struct metrics_query {
    int64_t job;
    const char *name; /* NULL: all that the program reported, or with `usage` all that nodes measured */
    bool by_rank;     /* only those of `rank` */
    int rank;
    bool usage;
    size_t limit;     /* the newest steps of each series; 0: no limit */
    int64_t since_ms; /* only points with this time or a later one */
    int64_t after;    /* only points of appends with a larger number; 0: all */
    int64_t until;    /* only points of appends up to this number; 0: all */
    size_t most;      /* points of all series together; 0: METRICS_READ_MOST */
};
/* The number of the newest append. */
int64_t metrics_newest(const struct metrics *m);
/* Reads points, ordered by name, rank and step. The caller frees *out. If more than query->most match, each series loses the same
 * share of its points, but keeps its first and last one and its spikes (base/thinning.h), and *thinned (may be NULL) is true. A few
 * points of each series stay in any case, so there may be more than query->most; above twice that number the read fails with
 * RESOURCE_EXHAUSTED. */
MUST_CHECK enum err_code metrics_read(struct metrics *m, const struct metrics_query *query,
                                      struct metric_point **out, size_t *count, bool *thinned, struct err *e);
/* Deletes series, first those of usage and those of the oldest jobs, until the rest needs at most this number of bytes. metrics_append
 * does this from time to time, with METRICS_BYTES_MAX. */
MUST_CHECK enum err_code metrics_trim(struct metrics *m, int64_t bytes, struct err *e);
MUST_CHECK enum err_code metrics_forget(struct metrics *m, int64_t job, struct err *e);

#endif
