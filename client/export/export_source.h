#ifndef DDP_CLIENT_EXPORT_EXPORT_SOURCE_H
#define DDP_CLIENT_EXPORT_EXPORT_SOURCE_H

#include "client/connect.h"
#include "client/export/export_points.h"

/* Whose points are fetched if the coordinator leaves some out. */
enum export_ranks { EXPORT_ALL_RANKS, EXPORT_LOWEST_RANK };

/* Gets the points that match the request, by name, rank and step. The coordinator leaves points out of an answer that would be too
 * long; then each metric of each rank is fetched on its own. EXPORT_LOWEST_RANK: then only that of the lowest rank, for
 * readers that show one rank of each metric. The caller frees *reply (rpc_release). */
MUST_CHECK enum err_code export_get(struct link *link, const Ddp__V1__GetMetricsRequest *request,
                                    enum export_ranks ranks, void **reply, struct err *e);
/* Fetches the points of a job that are new since the last export_points_done, sorted by time, with export_get. */
MUST_CHECK enum err_code export_fetch(struct link *link, int64_t job, struct export_points *all,
                                      struct err *e);

#endif
