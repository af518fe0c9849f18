#include "client/web/web_answers.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/reply_json.h"
#include "client/web/web_call.h"
#include "client/web/web_lines.h"
#include "client/web/web_orders.h"
#include "client/web/web_points.h"

#define LOGS_MS 10000
#define LOGS_BYTES (4 << 20)
#define LOGS_TAIL 500
#define LOGS_TAIL_MOST 10000
#define POINTS 800
#define POINTS_MOST 20000

static enum err_code answer_jobs(struct link *link, const struct web_request *r, struct buf *out,
                                 struct err *e)
{
    Ddp__V1__ListJobsRequest request = DDP__V1__LIST_JOBS_REQUEST__INIT;
    int64_t all;
    if (web_request_int(r, "all", 0, 1, 0, &all, e) != ERR_OK ||
        web_request_int(r, "after", -1, INT64_MAX, 0, &request.after, e) != ERR_OK)
        return e->code;
    request.all = all;
    return web_call_print(link, "ListJobs", &request, out, e);
}

static enum err_code answer_metrics(struct link *link, const struct web_request *r, struct buf *out,
                                    struct err *e)
{
    Ddp__V1__GetMetricsRequest request = DDP__V1__GET_METRICS_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    const char *form = web_request_text(r, "form"), *names = web_request_text(r, "names");
    int64_t from_step, points, usage;
    if (web_request_int(r, "from_step", INT64_MIN, INT64_MAX, INT64_MIN, &from_step, e) != ERR_OK ||
        web_request_int(r, "usage", 0, 1, 0, &usage, e) != ERR_OK ||
        web_request_int(r, "points", 0, POINTS_MOST, POINTS, &points, e) != ERR_OK)
        return e->code;
    if (form && strcmp(form, "series") != 0 && strcmp(form, "points") != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "form: expected points or series, got '%.60s'", form);
    request.job = r->job;
    request.usage = usage;
    if (names && !strchr(names, ',')) /* the coordinator reads one metric, or all */
        request.name = (char *)(uintptr_t)names;
    if (link_call(link, "GetMetrics", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    web_points_choose(reply, names && *names ? names : NULL, from_step, (size_t)points);
    if (form && *form == 's')
        web_points_print_series(reply, r->job, out);
    else
        reply_json_metrics(reply, r->job, out);
    return ERR_OK;
}

static enum err_code answer_read_logs(struct rpc_stream *stream, struct web_lines *lines, bool *complete,
                                      struct err *e)
{
    const int64_t until = clock_boot_ms() + LOGS_MS;
    *complete = false;
    while (lines->json.len < LOGS_BYTES) {
        CLEANUP(rpc_release) void *data = NULL;
        const int64_t wait = until - clock_boot_ms();
        const enum err_code code = rpc_stream_next(stream, wait > 0 ? wait : 0, &data, e);
        if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(stream))
            return ERR_OK; /* what has come until now */
        if (code != ERR_OK)
            return code;
        *complete = !data;
        if (!data)
            return ERR_OK;
        web_lines_add(lines, data);
    }
    return ERR_OK;
}

static enum err_code answer_logs(struct link *link, const struct web_request *r, struct buf *out,
                                 struct err *e)
{
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    CLEANUP(web_lines_release) struct web_lines lines = {0};
    const char *grep = web_request_text(r, "grep");
    struct rpc_stream *stream;
    int64_t rank;
    bool complete;
    if (web_request_int(r, "rank", 0, INT32_MAX, -1, &rank, e) != ERR_OK ||
        web_request_int(r, "generation", 0, INT64_MAX, 0, &request.generation, e) != ERR_OK ||
        web_request_int(r, "tail", 1, LOGS_TAIL_MOST, LOGS_TAIL, &request.tail_lines, e) != ERR_OK ||
        link_check_owner(link, e) != ERR_OK)
        return e->code;
    request.job = r->job;
    request.rank = (int32_t)rank;
    request.both = request.times = true;
    request.grep = (char *)(uintptr_t)(grep ? grep : "");
    if (rpc_stream_open(&stream, link->channel, &ddp__v1__cluster__descriptor, "ReadLogs", &request, 0, 0,
                        e) != ERR_OK)
        return link_explain(link, e);
    const enum err_code code = answer_read_logs(stream, &lines, &complete, e);
    rpc_stream_close(stream);
    if (code != ERR_OK)
        return link_explain(link, e);
    web_lines_finish(&lines);
    buf_printf(out, "{\"job\":%lld,\"lines\":[", (long long)r->job);
    buf_append(out, lines.json.data, lines.json.len);
    buf_puts(out, "],\"notes\":[");
    buf_append(out, lines.notes.data, lines.notes.len);
    buf_printf(out, "],\"complete\":%s}\n", complete && !lines.incomplete ? "true" : "false");
    return ERR_OK;
}

static enum err_code answer_events(struct link *link, const struct web_request *r, struct buf *out,
                                   struct err *e)
{
    Ddp__V1__GetEventsRequest request = DDP__V1__GET_EVENTS_REQUEST__INIT;
    request.job = r->job;
    if (web_request_int(r, "after", -1, INT64_MAX, 0, &request.after, e) != ERR_OK)
        return e->code;
    return web_call_print(link, "GetEvents", &request, out, e);
}

static enum err_code answer_why(struct link *link, const struct web_request *r, struct buf *out,
                                struct err *e)
{
    Ddp__V1__ProbeJobRequest request = DDP__V1__PROBE_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    request.job = r->job;
    if (link_call(link, "ProbeJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    reply_json_why(reply, out);
    return ERR_OK;
}

static enum err_code answer_version(struct link *link, struct buf *out, struct err *e)
{
    Ddp__V1__GetVersionRequest request = DDP__V1__GET_VERSION_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    if (link_call(link, "GetVersion", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    reply_json_version(reply, out);
    return ERR_OK;
}

static enum err_code answer_route(struct link *link, const struct web_request *r, struct buf *out,
                                  struct err *e)
{
    Ddp__V1__GetJobRequest job = DDP__V1__GET_JOB_REQUEST__INIT;
    Ddp__V1__ListNodesRequest nodes = DDP__V1__LIST_NODES_REQUEST__INIT;
    Ddp__V1__WhoAmIRequest who = DDP__V1__WHO_AM_IREQUEST__INIT;
    switch (r->route) {
    case WEB_JOBS:
        return answer_jobs(link, r, out, e);
    case WEB_JOB:
        job.job = r->job;
        return web_call_print(link, "GetJob", &job, out, e);
    case WEB_METRICS:
        return answer_metrics(link, r, out, e);
    case WEB_LOGS:
        return answer_logs(link, r, out, e);
    case WEB_EVENTS:
    case WEB_CLUSTER_EVENTS:
        return answer_events(link, r, out, e);
    case WEB_WHY:
        return answer_why(link, r, out, e);
    case WEB_NODES:
        return web_call_print(link, "ListNodes", &nodes, out, e);
    case WEB_VERSION:
        return answer_version(link, out, e);
    case WEB_WHOAMI:
        return web_call_print(link, "WhoAmI", &who, out, e);
    default:
        return web_order(link, r, out, e);
    }
}

void web_answer(struct link *link, const struct web_request *request, struct web_reply *reply)
{
    struct err e = {0};
    if (answer_route(link, request, &reply->body, &e) != ERR_OK)
        web_reply_fail(reply, &e);
}
