#include "client/export/export_source.h"

#include "base/mem.h"

static enum err_code metrics_get(struct link *link, const Ddp__V1__GetMetricsRequest *request, void **reply,
                                 struct err *e)
{
    return link_call(link, "GetMetrics", request, reply, 0, e);
}

/* `last` has a point of each metric of each rank. */
static enum err_code series_fetch_each(struct link *link, const Ddp__V1__GetMetricsRequest *request,
                                       const Ddp__V1__GetMetricsReply *last, struct export_points *all,
                                       struct err *e)
{
    for (size_t i = 0; i < last->n_points; i++) {
        CLEANUP(rpc_release) void *reply = NULL;
        Ddp__V1__GetMetricsRequest one = *request;
        one.name = last->points[i]->name;
        one.by_rank = true;
        one.rank = last->points[i]->rank;
        if (metrics_get(link, &one, &reply, e) != ERR_OK)
            return e->code;
        export_points_take(all, reply);
    }
    return ERR_OK;
}

enum err_code export_fetch(struct link *link, int64_t job, struct export_points *all, struct err *e)
{
    Ddp__V1__GetMetricsRequest request = DDP__V1__GET_METRICS_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(rpc_release) void *last = NULL;
    request.job = job;
    request.after = all->after;
    all->count = 0; /* what an interrupted turn has left is fetched again */
    if (metrics_get(link, &request, &message, e) != ERR_OK)
        return e->code;
    const Ddp__V1__GetMetricsReply *reply = message;
    all->newest = request.until = reply->newest; /* what comes meanwhile belongs to the next turn */
    if (!reply->thinned) {
        export_points_take(all, reply);
    } else {
        Ddp__V1__GetMetricsRequest newest = request;
        newest.limit = 1;
        if (metrics_get(link, &newest, &last, e) != ERR_OK ||
            series_fetch_each(link, &request, last, all, e) != ERR_OK)
            return e->code;
    }
    export_points_sort(all);
    return ERR_OK;
}
