#ifndef DDP_CLIENT_EXPORT_EXPORT_POINTS_H
#define DDP_CLIENT_EXPORT_EXPORT_POINTS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/ddp.pb-c.h"

/* The points of a job that have not been exported yet. `export --follow` asks for the newest points again and again; a
 * point counts as new if it is newer than all that its series had before. A step that a restarted job repeats is
 * newer, and therefore exported again. No clock; one thread. */

struct export_series {
    char *name;
    int rank;
    int64_t time_ms, step;           /* of the newest exported point; time_ms INT64_MIN: none */
    int64_t next_time_ms, next_step; /* of the newest point that was taken */
};

struct export_point {
    const struct export_series *series; /* valid until the next export_points_take */
    int64_t step, time_ms;
    double value;
};

struct export_points {
    struct export_series **series; /* sorted by name and rank */
    size_t series_count, series_cap;
    struct export_point *points; /* to be exported, sorted by time */
    size_t count, cap;
    int64_t newest_ms; /* of all points; 0: there was none */
};

/* Adds the points of a reply that are new. */
void export_points_take(struct export_points *all, const Ddp__V1__GetMetricsReply *reply);
void export_points_sort(struct export_points *all); /* after the last reply of a turn */
void export_points_done(struct export_points *all); /* they have been written */
void export_points_release(struct export_points *all);

#endif
