#ifndef DDP_CLIENT_EXPORT_EXPORT_SOURCE_H
#define DDP_CLIENT_EXPORT_EXPORT_SOURCE_H

#include "client/connect.h"
#include "client/export/export_points.h"

/* Fetches the points of a job that are new since the last export_points_done, sorted by time. The coordinator leaves points out of an answer
 * that would be too long; then each metric of each rank is fetched on its own. */
MUST_CHECK enum err_code export_fetch(struct link *link, int64_t job, struct export_points *all,
                                      struct err *e);

#endif
