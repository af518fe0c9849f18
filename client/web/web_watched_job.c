#include "client/web/web_watched_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/text/json_print.h"

#define USAGE_MS 2500         /* nodes measure every 5 s */
#define LOG_TAIL 50           /* lines, when the first viewer comes */
#define LOG_BYTES (256 << 10) /* in one frame; the rest waits in the stream */

struct watched_series {
    char *name;
    int32_t rank;
    int64_t time_ms, step; /* of the newest point */
    int64_t highest;       /* of all steps */
    bool seen;
};

/* The frame of a topic begins with its job and the revision of the frame before it, so that a viewer sees whether it has missed
 * one. previous 0: there was none, or some content could not be sent. */
static void watched_put(const struct web_watched_job *j, struct web_levels *levels, enum web_topic topic,
                        const char *name, uint64_t previous, const char *members)
{
    CLEANUP(buf_release) struct buf json = {0};
    buf_printf(&json, "{\"job\":%lld,\"previous\":%llu,", (long long)j->job, (unsigned long long)previous);
    buf_puts(&json, members);
    web_levels_put(levels, topic, j->job, "", name, &json, false);
}

/* ---- points */

/* Begins behind the series that was found last, because every reply has the series in the same order. */
static struct watched_series *watched_find_series(struct web_watched_curves *c, const Ddp__V1__MetricPoint *p)
{
    for (size_t i = 0; i < c->count; i++) {
        const size_t at = (c->next + i) % c->count;
        if (c->series[at].rank == p->rank && strcmp(c->series[at].name, p->name) == 0) {
            c->next = at + 1;
            return &c->series[at];
        }
    }
    c->series = array_grow(c->series, c->count, &c->cap, sizeof(*c->series));
    struct watched_series *s = &c->series[c->count++];
    *s = (struct watched_series){
        .name = xstrdup(p->name), .rank = p->rank, .time_ms = -1, .step = -1, .highest = -1};
    return s;
}

/* Moves the points that were not sent yet to the front of `out`. A point is new if its time is later, or its step higher, than
 * what was sent: after a return to a snapshot, lower steps have later times; after a move of the rank to a node whose clock is
 * behind, higher steps have earlier times. *lost: there were more new points than the limit that was asked for. *most: the
 * largest number of new points of a series. */
static size_t watched_new_points(struct web_watched_curves *c, const Ddp__V1__GetMetricsReply *reply,
                                 size_t limit, Ddp__V1__MetricPoint **out, bool *lost, size_t *most)
{
    size_t count = 0;
    for (size_t i = 0, end; i < reply->n_points; i = end) {
        struct watched_series *s = watched_find_series(c, reply->points[i]);
        const int64_t time_sent = s->time_ms, step_sent = s->step, highest_sent = s->highest;
        size_t fresh = 0;
        for (end = i; end < reply->n_points && reply->points[end]->rank == s->rank &&
                      strcmp(reply->points[end]->name, s->name) == 0;
             end++) {
            Ddp__V1__MetricPoint *p = reply->points[end];
            const bool later = p->time_ms > time_sent || (p->time_ms == time_sent && p->step > step_sent);
            if (!later && p->step <= highest_sent)
                continue;
            out[count++] = p;
            fresh++;
            s->highest = p->step > s->highest ? p->step : s->highest;
            if (p->time_ms > s->time_ms || (p->time_ms == s->time_ms && p->step > s->step)) {
                s->time_ms = p->time_ms;
                s->step = p->step;
            }
        }
        *lost = *lost || (s->seen && fresh >= limit);
        *most = !s->seen || fresh < *most ? *most : fresh;
        s->seen = true;
    }
    return count;
}

static enum err_code watched_put_curves(const struct web_watched_job *j, struct web_watched_curves *c,
                                        struct link *link, struct web_levels *levels, struct err *e)
{
    const bool usage = c == &j->measured;
    const enum web_topic topic = usage ? TOPIC_USAGE : TOPIC_POINTS;
    Ddp__V1__GetMetricsRequest request = DDP__V1__GET_METRICS_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(buf_release) struct buf json = {0};
    /* Before this job's first frame there may be one for viewers that have left, which is too old to go on from. */
    const uint64_t previous = c->sent ? web_levels_revision(levels, topic, j->job, "") : 0;
    request.job = j->job;
    request.usage = usage;
    request.limit = web_newest_limit(&c->newest, c->count);
    if (link_call(link, "GetMetrics", &request, &message, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__GetMetricsReply *reply = message;
    Ddp__V1__GetMetricsReply fresh = DDP__V1__GET_METRICS_REPLY__INIT;
    bool lost = reply->thinned;
    size_t most_fresh = 0;
    fresh.points = xmalloc((reply->n_points + 1) * sizeof(*fresh.points));
    fresh.n_points = watched_new_points(c, reply, (size_t)request.limit, fresh.points, &lost, &most_fresh);
    fresh.captured = reply->captured; /* borrowed */
    fresh.n_captured = reply->n_captured;
    web_newest_learn(&c->newest, (size_t)request.limit, most_fresh, lost);
    const bool tells = web_newest_tell(&c->newest, clock_boot_ms());
    if (fresh.n_points || !previous || tells) {
        json_print(&fresh.base, &json);
        watched_put(j, levels, topic, usage ? "usage" : "point", tells ? 0 : previous, json.data + 1);
    } else {
        web_levels_keep(levels, topic, j->job);
    }
    c->sent = true;
    free(fresh.points);
    return ERR_OK;
}

/* Nodes measure less often than programs report. Their curves have frames of their own, so that a viewer that misses
 * points of the program does not ask for both. */
static enum err_code watched_put_points(struct web_watched_job *j, struct link *link,
                                        struct web_levels *levels, struct err *e)
{
    const int64_t now = clock_boot_ms();
    if (now < j->usage_ms && web_levels_revision(levels, TOPIC_USAGE, j->job, "")) {
        web_levels_keep(levels, TOPIC_USAGE, j->job);
    } else {
        j->usage_ms = now + USAGE_MS;
        if (watched_put_curves(j, &j->measured, link, levels, e) != ERR_OK)
            return e->code;
    }
    return watched_put_curves(j, &j->reported, link, levels, e);
}

/* ---- status and events */

/* The newest points are those of the highest steps. A job that went back to a snapshot replaces points of lower ones. */
static void watched_note_progress(struct web_watched_job *j, const Ddp__V1__JobStatus *status)
{
    const int64_t step = status->progress ? status->progress->step : 0;
    const bool repeated = j->repeats;
    j->repeats = step < j->highest_step && !status->ended_ms;
    j->reported.newest.missing = j->reported.newest.missing || repeated || j->repeats;
    if (step > j->highest_step)
        j->highest_step = step;
}

static enum err_code watched_put_status(struct web_watched_job *j, struct link *link,
                                        struct web_levels *levels, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf json = {0};
    request.job = j->job;
    if (link_call(link, "GetJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    watched_note_progress(j, reply);
    json_print(reply, &json);
    web_levels_put(levels, TOPIC_JOB_DETAIL, j->job, "", "job", &json, true);
    return ERR_OK;
}

static enum err_code watched_put_events(struct web_watched_job *j, struct link *link,
                                        struct web_levels *levels, struct err *e)
{
    Ddp__V1__GetEventsRequest request = DDP__V1__GET_EVENTS_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(buf_release) struct buf json = {0};
    request.job = j->job;
    request.after = j->event ? j->event : j->has_events ? -1 : 0;
    if (link_call(link, "GetEvents", &request, &message, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__GetEventsReply *reply = message;
    const uint64_t previous = j->has_events ? web_levels_revision(levels, TOPIC_EVENTS, j->job, "") : 0;
    if (reply->n_events || !previous) {
        json_print(&reply->base, &json);
        watched_put(j, levels, TOPIC_EVENTS, "event", previous, json.data + 1);
    } else {
        web_levels_keep(levels, TOPIC_EVENTS, j->job);
    }
    j->has_events = true;
    if (reply->n_events)
        j->event = reply->events[reply->n_events - 1]->id;
    return ERR_OK;
}

/* ---- output */

static enum err_code watched_open_log(struct web_watched_job *j, struct link *link, struct err *e)
{
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    request.job = j->job;
    request.rank = -1;
    request.follow = request.both = request.times = request.all_generations = true;
    request.tail_lines = LOG_TAIL;
    if (link_check_owner(link, e) != ERR_OK)
        return e->code;
    return rpc_stream_open(&j->stream, link->channel, &ddp__v1__cluster__descriptor, "ReadLogs", &request, 0,
                           0, e);
}

static void watched_close_log(struct web_watched_job *j)
{
    rpc_stream_close(j->stream);
    j->stream = NULL;
    web_lines_release(&j->lines);
    j->has_log = j->log_ended = false;
}

/* Takes what has come; the stream holds back the rest, and so do the nodes. */
static void watched_read_log(struct web_watched_job *j)
{
    struct err e;
    while (j->lines.json.len < LOG_BYTES) {
        CLEANUP(rpc_release) void *data = NULL;
        const enum err_code code = rpc_stream_next(j->stream, 1, &data, &e);
        if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(j->stream))
            return;
        if (data) {
            web_lines_add(&j->lines, data);
            continue;
        }
        /* After an error the output is read again from its end, and viewers are told to fetch what they miss. If the
         * caller may not read it, it is not requested again. */
        rpc_stream_close(j->stream);
        j->stream = NULL;
        web_lines_finish(&j->lines);
        j->log_ended = code == ERR_OK || code == ERR_PERMISSION_DENIED;
        j->has_log = j->has_log && j->log_ended;
        return;
    }
}

static enum err_code watched_put_log(struct web_watched_job *j, struct link *link, struct web_levels *levels,
                                     struct err *e)
{
    CLEANUP(buf_release) struct buf json = {0};
    const uint64_t previous = j->has_log ? web_levels_revision(levels, TOPIC_LOG, j->job, "") : 0;
    if (!j->stream && !j->log_ended && watched_open_log(j, link, e) != ERR_OK)
        return e->code;
    if (j->stream)
        watched_read_log(j);
    if (j->lines.count || j->lines.notes.len || !web_levels_revision(levels, TOPIC_LOG, j->job, "")) {
        buf_puts(&json, "\"lines\":[");
        buf_append(&json, j->lines.json.data, j->lines.json.len);
        buf_puts(&json, "],\"notes\":[");
        buf_append(&json, j->lines.notes.data, j->lines.notes.len);
        buf_puts(&json, "]}");
        watched_put(j, levels, TOPIC_LOG, "log", previous, json.data);
        j->has_log = true;
    } else {
        web_levels_keep(levels, TOPIC_LOG, j->job);
    }
    web_lines_clear(&j->lines);
    return ERR_OK;
}

enum err_code web_watched_job_put(struct web_watched_job *j, struct link *link, struct web_levels *levels,
                                  struct err *e)
{
    enum err_code code = ERR_OK;
    if (!j->logs) /* closes the stream, or else the nodes hold back output that nobody reads */
        watched_close_log(j);
    if (j->curves && (code = watched_put_status(j, link, levels, e)) == ERR_OK &&
        (code = watched_put_points(j, link, levels, e)) == ERR_OK)
        code = watched_put_events(j, link, levels, e);
    if (code == ERR_OK && j->logs)
        code = watched_put_log(j, link, levels, e);
    /* Another error is about this job, which is asked again in the next turn. The other jobs go on. */
    return code == ERR_UNAVAILABLE || code == ERR_CANCELLED ? code : ERR_OK;
}

static void watched_curves_release(struct web_watched_curves *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->series[i].name);
    free(c->series);
}

void web_watched_job_release(struct web_watched_job *j)
{
    watched_close_log(j);
    watched_curves_release(&j->reported);
    watched_curves_release(&j->measured);
    *j = (struct web_watched_job){0};
}
