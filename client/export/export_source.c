#include "client/export/export_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static enum err_code metrics_get(struct link *link, const Ddp__V1__GetMetricsRequest *request, void **reply,
                                 struct err *e)
{
    return link_call(link, "GetMetrics", request, reply, 0, e);
}

/* Removes the points of a reply. */
static void reply_drop_points(Ddp__V1__GetMetricsReply *reply)
{
    for (size_t i = 0; i < reply->n_points; i++)
        ddp__v1__metric_point__free_unpacked(reply->points[i], NULL);
    reply->n_points = 0;
}

/* Moves the points of one reply to the end of another. */
static void reply_move_points(Ddp__V1__GetMetricsReply *to, size_t *cap, Ddp__V1__GetMetricsReply *from)
{
    for (size_t i = 0; i < from->n_points; i++) {
        to->points = array_grow(to->points, to->n_points, cap, sizeof(*to->points));
        to->points[to->n_points++] = from->points[i];
    }
    from->n_points = 0;
}

/* Replaces the points of the reply by those of each series. `last` has a point of each metric of each rank. */
static enum err_code series_get_each(struct link *link, const Ddp__V1__GetMetricsRequest *request,
                                     const Ddp__V1__GetMetricsReply *last, enum export_ranks ranks,
                                     Ddp__V1__GetMetricsReply *reply, struct err *e)
{
    size_t cap = reply->n_points;

    reply_drop_points(reply);
    for (size_t i = 0; i < last->n_points; i++) {
        CLEANUP(rpc_release) void *part = NULL;
        Ddp__V1__GetMetricsRequest one = *request;
        one.name = last->points[i]->name;
        one.by_rank = true;
        one.rank = last->points[i]->rank;
        /* The points come by name, then by rank. */
        if (ranks == EXPORT_LOWEST_RANK && i && strcmp(one.name, last->points[i - 1]->name) == 0)
            continue;
        if (metrics_get(link, &one, &part, e) != ERR_OK)
            return e->code;
        reply_move_points(reply, &cap, part);
    }
    return ERR_OK;
}

enum err_code export_get(struct link *link, const Ddp__V1__GetMetricsRequest *request,
                         enum export_ranks ranks, void **reply, struct err *e)
{
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(rpc_release) void *last = NULL;
    if (metrics_get(link, request, &message, e) != ERR_OK)
        return e->code;
    Ddp__V1__GetMetricsReply *all = message;
    if (all->thinned) {
        Ddp__V1__GetMetricsRequest whole = *request, newest;
        whole.until = all->newest; /* what comes meanwhile belongs to a later request */
        newest = whole;
        newest.limit = 1;
        if (metrics_get(link, &newest, &last, e) != ERR_OK ||
            series_get_each(link, &whole, last, ranks, all, e) != ERR_OK)
            return e->code;
        all->thinned = false;
    }
    *reply = steal(message);
    return ERR_OK;
}

enum err_code export_fetch(struct link *link, int64_t job, struct export_points *all, struct err *e)
{
    Ddp__V1__GetMetricsRequest request = DDP__V1__GET_METRICS_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    request.job = job;
    request.after = all->after;
    all->count = 0; /* what an interrupted turn has left is fetched again */
    if (export_get(link, &request, EXPORT_ALL_RANKS, &message, e) != ERR_OK)
        return e->code;
    const Ddp__V1__GetMetricsReply *reply = message;
    all->newest = reply->newest;
    export_points_take(all, reply);
    export_points_sort(all);
    return ERR_OK;
}
