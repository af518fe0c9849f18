#ifndef DDP_CLIENT_EXPORT_EXPORT_POINTS_H
#define DDP_CLIENT_EXPORT_EXPORT_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ddp.pb-c.h"

/* The points of a job that have not been exported yet. `export --follow` asks again and again for those that came after its last
 * answer, whatever their time: a node that was cut off sends its points late. A step that a restarted job repeats comes
 * again, and is exported again. No clock; one thread. */

struct export_series {
    char *name;
    int rank;
    bool captured; /* ddp has read it from the program's output or TensorBoard files */
};
/* Whether the reply says so of a metric of this rank. */
bool export_is_captured(const Ddp__V1__GetMetricsReply *reply, const char *name, int rank);

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
    int64_t after;  /* the `newest` of the reply up to which all points are exported; 0: none */
    int64_t newest; /* that of the reply whose points are taken now */
};

/* Adds the points of a reply. */
void export_points_take(struct export_points *all, const Ddp__V1__GetMetricsReply *reply);
void export_points_sort(struct export_points *all); /* after the last reply of a turn */
void export_points_done(struct export_points *all); /* they have been written */
void export_points_release(struct export_points *all);

#endif
