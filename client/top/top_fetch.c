#include "client/top/top_fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/diagnose/diagnosis.h"
#include "client/job_status.h"

#define WHY_EVERY_MS 5000   /* nodes inspect processes to answer */
#define CURVE_EVERY_MS 2000 /* points come every few steps */
#define POINTS_MOST 2000
#define LOG_LINES 10   /* of each rank */
#define LOG_KEPT 40    /* lines of all ranks */
#define LOG_BYTES 4000 /* of a line */
#define LIMIT_MS 3000  /* of a call; no key is read meanwhile */

static bool top_fetch_list(struct top_fetched *d, struct link *link, struct err *e)
{
    Ddp__V1__ListNodesRequest request = DDP__V1__LIST_NODES_REQUEST__INIT;
    struct job_pages pages = {0};
    void *nodes = NULL;

    if (job_pages_fetch_within(link, false, &pages, LIMIT_MS, e) != ERR_OK ||
        link_call_within(link, "ListNodes", &request, &nodes, LIMIT_MS, e) != ERR_OK) {
        job_pages_release(&pages);
        return false;
    }
    job_pages_release(&d->pages);
    rpc_release(&d->nodes);
    d->pages = pages;
    d->nodes = nodes;
    d->model.totals = pages.totals;
    d->model.jobs = pages.jobs;
    d->model.job_count = pages.count;
    d->model.nodes = ((Ddp__V1__ListNodesReply *)nodes)->nodes;
    d->model.node_count = ((Ddp__V1__ListNodesReply *)nodes)->n_nodes;
    return true;
}

/* ---- the opened job */

static void top_forget_job(struct top_fetched *d)
{
    rpc_release(&d->job);
    series_release(&d->model.open.curve);
    free(steal(d->why));
    free(steal(d->curve_label));
    strv_free(steal(d->log));
    d->model.open = (struct top_job){0};
    d->opened = d->whys_at = d->curve_at = 0;
}

static void top_fetch_why(struct top_fetched *d, struct link *link)
{
    Ddp__V1__ProbeJobRequest request = DDP__V1__PROBE_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(diagnosis_release) struct diagnosis diagnosis = {0};
    struct err e;

    request.job = d->opened;
    free(steal(d->why));
    if (link_call_within(link, "ProbeJob", &request, &reply, 2 * LIMIT_MS, &e) == ERR_OK) {
        diagnosis_find(reply, &diagnosis);
        d->why = xstrdup(diagnosis.sentence.data);
    }
    d->model.open.why = d->why;
}

static void top_fetch_curve(struct top_fetched *d, struct link *link)
{
    Ddp__V1__GetMetricsRequest request = DDP__V1__GET_METRICS_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    struct err e;

    request.job = d->opened;
    request.name = (char *)(uintptr_t) "loss";
    request.limit = POINTS_MOST;
    if (link_call_within(link, "GetMetrics", &request, &reply, LIMIT_MS, &e) != ERR_OK)
        return;
    series_release(&d->model.open.curve);
    series_take(&d->model.open.curve, reply, "loss");
    free(d->curve_label);
    d->curve_label = xasprintf("#%lld loss", (long long)d->opened);
    d->model.open.curve_label = d->curve_label;
}

/* Adds the lines of a piece of output, with the rank in front, and drops the oldest ones. */
static void top_add_log(struct top_fetched *d, const Ddp__V1__LogData *data)
{
    const char *at = (const char *)data->data.data, *end = at + data->data.len;

    if (*data->note)
        d->log = strv_append(d->log, data->note);
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t len = (size_t)((line_end ? line_end : end) - at);
        const char *carriage = memrchr(at, '\r', len && at[len - 1] == '\r' ? len - 1 : len);
        const char *from = carriage ? carriage + 1 : at; /* a progress bar: its last state */
        const size_t shown = len - (size_t)(from - at);
        CLEANUP(free_text)
        char *line = xasprintf("%d | %.*s", data->rank, (int)(shown < LOG_BYTES ? shown : LOG_BYTES), from);
        d->log = strv_append(d->log, line);
        at += len + 1;
    }
    while (strv_len(d->log) > LOG_KEPT) {
        free(d->log[0]);
        memmove(d->log, d->log + 1, strv_len(d->log + 1) * sizeof(*d->log) + sizeof(*d->log));
    }
}

static void top_fetch_log(struct top_fetched *d, struct link *link)
{
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    struct rpc_stream *stream = NULL;
    const int64_t until = clock_boot_ms() + LIMIT_MS;
    struct err e;

    request.job = d->opened;
    request.rank = -1;
    request.both = true;
    request.tail_lines = LOG_LINES;
    strv_free(steal(d->log));
    d->model.open.log = NULL;
    if (link_check_owner(link, &e) != ERR_OK ||
        rpc_stream_open(&stream, link->channel, &ddp__v1__cluster__descriptor, "ReadLogs", &request, 0, 0,
                        &e) != ERR_OK)
        return;
    for (bool more = true; more;) {
        void *message = NULL;
        const int64_t wait = clock_left_ms(until); /* read once: a wait below 0 means no limit */
        more = wait && rpc_stream_next(stream, wait, &message, &e) == ERR_OK && message;
        if (message)
            top_add_log(d, message);
        rpc_release(&message);
    }
    rpc_stream_close(stream);
    d->model.open.log = d->log;
}

static bool top_fetch_job(struct top_fetched *d, struct link *link, int64_t job, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    const int64_t now = clock_boot_ms();
    void *reply = NULL;

    if (d->opened != job)
        top_forget_job(d);
    d->opened = job;
    request.job = job;
    if (link_call_within(link, "GetJob", &request, &reply, LIMIT_MS, e) != ERR_OK)
        return false;
    rpc_release(&d->job);
    d->job = reply;
    d->model.open.status = reply;
    if (now >= d->curve_at) {
        top_fetch_curve(d, link);
        top_fetch_log(d, link);
        d->curve_at = now + CURVE_EVERY_MS;
    }
    if (now >= d->whys_at) {
        top_fetch_why(d, link);
        d->whys_at = now + WHY_EVERY_MS;
    }
    return true;
}

bool top_fetch(struct top_fetched *d, struct link *link, const struct top_state *s)
{
    struct err e = {0};
    const bool done = s->page == TOP_JOB ? top_fetch_job(d, link, s->open, &e) : top_fetch_list(d, link, &e);

    free(steal(d->problem));
    d->code = done ? ERR_OK : e.code;
    if (!done)
        d->problem = xstrdup(e.msg);
    /* the whole message has no room in the last line */
    const bool away = d->code == ERR_UNAVAILABLE || d->code == ERR_DEADLINE_EXCEEDED;
    d->model.problem = away ? "the coordinator does not answer; the jobs go on" : d->problem;
    if (s->page != TOP_JOB && d->opened)
        top_forget_job(d);
    return done;
}

void top_fetched_release(struct top_fetched *d)
{
    top_forget_job(d);
    job_pages_release(&d->pages);
    rpc_release(&d->nodes);
    free(d->problem);
    *d = (struct top_fetched){0};
}

void top_cancel(struct link *link, int64_t job, char *out, size_t size)
{
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    struct err e;

    request.job = job;
    if (link_call_within(link, "CancelJob", &request, &reply, LIMIT_MS, &e) != ERR_OK)
        snprintf(out, size, "%s", e.msg);
    else
        snprintf(out, size, "#%lld %s", (long long)job, ((const Ddp__V1__CancelJobReply *)reply)->state);
}
