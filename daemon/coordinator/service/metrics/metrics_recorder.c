#include "daemon/coordinator/service/metrics/metrics_recorder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thinning.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/metrics/metrics_shares.h"
#include "daemon/coordinator/service/pool.h"
#include "proto/ddp.pb-c.h"

/* Two structs metrics_work alternate. The loop collects points and jobs to forget in `pending`. Every WRITE_EVERY_MS, or at once
 * for a read, `pending` becomes `running` and goes to the worker thread as a whole, with the read that waits longest; only
 * the worker touches them and the database until it is done. So a read sees all points added before it. One read is
 * answered before the next begins, so that the points of only one read are in memory, however many users ask.
 *
 * Metrics are not part of the durable state. If the database cannot be opened or written, the points are dropped and
 * counted, reads fail with the reason, and the coordinator continues. Damage to the file may be found only when a write or a read
 * reaches it. A damaged file would fail each write that touches the damage, for all jobs, so a new one takes its place at once. */

#define WRITE_EVERY_MS 500
#define REPLY_POINTS 20000 /* about 800 KB, well below gRPC's limit for one message */

/* A user's call that waits for points. */
struct points_read {
    struct rpc_call *call;
    struct metrics_query query;
    char *name; /* of the query; NULL: all */
    struct metric_point *points;
    size_t count;
    bool thinned; /* the store has left out some points */
    int64_t newest;
    bool failed;
    struct err err;
};

/* One unit of work for the worker thread. */
struct metrics_work {
    struct metric_point *points;
    size_t point_count, point_cap;
    int64_t *forgotten;
    size_t forgotten_count, forgotten_cap;
    bool failed;
    struct err err;
    char *damage; /* why the file was replaced; NULL: it was not */
};

struct metrics_recorder {
    struct metrics *metrics; /* the worker's while busy; NULL: not created yet, because the disk was full */
    char *dir;
    uv_loop_t *loop;
    uv_timer_t timer;
    uv_work_t work;
    bool busy;    /* the pool thread owns `running` */
    bool failing; /* the last write failed, and that was logged */
    struct metrics_work pending, running;
    struct points_read reads[METRICS_RECORDER_READS]; /* that wait; the first waits longest */
    size_t read_count;
    struct points_read read;  /* of `running`; call NULL: none */
    struct handles last_step; /* by step_key; reports without a step belong to the spawn's last step */
    uint64_t dropped;
    metrics_damage_fn damaged; /* NULL: nobody is told */
    void *damaged_user;
};

static void metrics_work_release(struct metrics_work *w)
{
    free(w->points);
    free(w->forgotten);
    free(w->damage);
    *w = (struct metrics_work){0};
}

/* ---- on the worker thread */

/* Returns why the file is damaged; NULL: it is not, as far as this work has seen. */
static const char *recorder_use_file(struct metrics_recorder *r)
{
    struct metrics_work *w = &r->running;
    struct points_read *q = &r->read;
    enum err_code code = metrics_append(r->metrics, w->points, w->point_count, &w->err);
    for (size_t i = 0; i < w->forgotten_count && code == ERR_OK; i++)
        code = metrics_forget(r->metrics, w->forgotten[i], &w->err);
    w->failed = code != ERR_OK;
    if (q->call) {
        q->newest = metrics_newest(r->metrics);
        q->failed =
            metrics_read(r->metrics, &q->query, &q->points, &q->count, &q->thinned, &q->err) != ERR_OK;
    }
    if (code == ERR_DATA_LOSS)
        return w->err.msg;
    return q->call && q->failed && q->err.code == ERR_DATA_LOSS ? q->err.msg : NULL;
}

static void recorder_run_work(struct metrics_recorder *r)
{
    struct metrics_work *w = &r->running;
    struct points_read *q = &r->read;
    const char *why = NULL;
    enum err_code code = ERR_OK;
    if (!r->metrics)
        code = metrics_open(&r->metrics, r->dir, &w->err);
    if (code == ERR_OK)
        why = recorder_use_file(r);
    if (why) {
        CLEANUP(free_text) char *damage = xstrdup(why);
        free(q->points); /* of a read that did not fail; it is repeated, too */
        q->points = NULL;
        code = metrics_replace(&r->metrics, r->dir, damage, &w->err);
        if (code == ERR_OK) { /* once: a disk that damages new files, too, must not keep the worker busy */
            w->damage = steal(damage);
            (void)recorder_use_file(r);
        }
    }
    if (code != ERR_OK) {
        w->failed = q->failed = true;
        q->err = w->err;
    }
}

static void recorder_on_worker(uv_work_t *req)
{
    recorder_run_work(req->data);
}

/* ---- on the loop */

static bool points_same_series(const struct metric_point *a, const struct metric_point *b)
{
    return a->rank == b->rank && strcmp(a->metric.name, b->metric.name) == 0;
}

/* A long job has more points than a reply can carry and a screen can show. Divides each series into buckets of stride
 * points, and keeps the points of each bucket that a chart needs (base/thinning.h), so that no spike and no NaN
 * disappears. Keeps the last point of a series, which users look at first. */
static size_t points_thin(struct metric_point **kept, struct metric_point *points, size_t count,
                          size_t stride)
{
    double *values = xmalloc((count + 1) * sizeof(*values));
    bool *keep = xmalloc((count + 1) * sizeof(*keep));
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        values[i] = points[i].metric.value;
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && points_same_series(&points[i], &points[end]);)
            end++;
        thinning_choose(values + i, end - i, stride > 1 ? (end - i) / stride + 1 : 0, keep + i);
    }
    for (size_t i = 0; i < count; i++)
        if (keep[i])
            kept[n++] = &points[i];
    free(values);
    free(keep);
    return n;
}

static void points_read_reply(struct points_read *q)
{
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__GetMetricsReply message = DDP__V1__GET_METRICS_REPLY__INIT;
    struct metric_point **kept = pool_alloc(&pool, q->count * sizeof *kept);
    const bool one_series = q->query.name && q->query.by_rank; /* at most METRICS_SERIES_MAX points */
    const bool fits = one_series || q->count <= REPLY_POINTS;
    const size_t stride = fits ? 1 : THINNING_KEPT * (q->count / REPLY_POINTS + 1);
    message.n_points = points_thin(kept, q->points, q->count, stride);
    message.thinned = q->thinned || message.n_points < q->count;
    message.newest = q->newest;
    message.points = pool_alloc(&pool, message.n_points * sizeof *message.points);
    message.captured = pool_alloc(&pool, message.n_points * sizeof *message.captured);
    for (size_t i = 0; i < message.n_points; i++) {
        Ddp__V1__MetricPoint *p = message.points[i] = pool_alloc(&pool, sizeof *p);
        ddp__v1__metric_point__init(p);
        p->step = kept[i]->step;
        p->time_ms = kept[i]->time_ms;
        p->name = kept[i]->metric.name;
        p->value = kept[i]->metric.value;
        p->rank = kept[i]->rank;
        /* The points come in the order of series. */
        if (kept[i]->captured && (!message.n_captured || strcmp(message.captured[message.n_captured - 1],
                                                                kept[i]->metric.name) != 0))
            message.captured[message.n_captured++] = kept[i]->metric.name;
    }
    rpc_call_reply(q->call, &message);
}

static void points_read_release(struct points_read *q)
{
    if (q->call)
        rpc_call_unref(q->call); /* the client may have gone meanwhile */
    free(q->points);
    free(q->name);
    *q = (struct points_read){0};
}

static void recorder_start_work(struct metrics_recorder *r);

static void recorder_on_timer(uv_timer_t *timer)
{
    recorder_start_work(timer->data);
}

/* The timer runs only when there is something to write, so an idle coordinator does not wake up. */
static void recorder_arm_timer(struct metrics_recorder *r)
{
    if (!uv_is_active((uv_handle_t *)&r->timer))
        uv_timer_start(&r->timer, recorder_on_timer, WRITE_EVERY_MS, 0);
}

static void recorder_finish_work(struct metrics_recorder *r)
{
    struct metrics_work *w = &r->running;
    if (w->failed) {
        r->dropped += w->point_count; /* not tried again, or points would pile up while the disk is full */
        for (size_t i = 0; i < w->forgotten_count; i++)
            metrics_recorder_forget(r, w->forgotten[i]);
        if (!r->failing)
            log_warn("metrics_not_written", "points=%zu why=%s", w->point_count, LOG_Q(w->err.msg));
    }
    if (w->damage && r->damaged && !(w->failed && r->failing)) /* else the disk damages each new file */
        r->damaged(r->damaged_user, w->damage);
    r->failing = w->failed;
    if (r->read.call && r->read.failed)
        rpc_call_fail(r->read.call, &r->read.err);
    else if (r->read.call)
        points_read_reply(&r->read);
    points_read_release(&r->read);
    metrics_work_release(w);
}

static void recorder_on_work_done(uv_work_t *req, int status)
{
    struct metrics_recorder *r = req->data;
    (void)status;
    r->busy = false;
    recorder_finish_work(r);
    if (r->read_count) /* users wait; points can wait for the timer */
        recorder_start_work(r);
    else if (r->pending.point_count || r->pending.forgotten_count) /* the timer may have fired meanwhile */
        recorder_arm_timer(r);
}

static uint64_t step_key(int64_t job, int64_t spawn)
{
    return ((uint64_t)job << 24 | ((uint64_t)spawn & 0xffffff)) + 1; /* never 0 */
}

static int compare_jobs(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool step_is_forgotten(uint64_t key, const void *user)
{
    const struct metrics_work *w = user;
    const int64_t job = (int64_t)((key - 1) >> 24);
    return bsearch(&job, w->forgotten, w->forgotten_count, sizeof job, compare_jobs) != NULL;
}

/* The read that waits longest becomes that of the running work, if there is one. */
static void recorder_take_read(struct metrics_recorder *r)
{
    while (r->read_count && !r->read.call) {
        r->read = r->reads[0];
        memmove(r->reads, r->reads + 1, --r->read_count * sizeof *r->reads);
        if (rpc_call_over(r->read.call)) /* its client has gone while it waited */
            points_read_release(&r->read);
    }
}

static void recorder_start_work(struct metrics_recorder *r)
{
    if (r->busy)
        return;
    recorder_take_read(r);
    if (!r->pending.point_count && !r->pending.forgotten_count && !r->read.call)
        return;
    if (r->pending.forgotten_count) {
        qsort(r->pending.forgotten, r->pending.forgotten_count, sizeof(int64_t), compare_jobs);
        handles_sweep(&r->last_step, step_is_forgotten, &r->pending);
    }
    r->running = r->pending;
    r->pending = (struct metrics_work){0};
    r->busy = true;
    r->work.data = r;
    BUG_ON(uv_queue_work(r->loop, &r->work, recorder_on_worker, recorder_on_work_done) != 0);
}

enum err_code metrics_recorder_open(struct metrics_recorder **out, uv_loop_t *loop, const char *dir,
                                    struct err *e)
{
    struct metrics_recorder *r = xcalloc(1, sizeof *r);
    /* On a full disk the coordinator starts without the database; recorder_run_work tries again. */
    if (metrics_open(&r->metrics, dir, e) != ERR_OK && e->code != ERR_RESOURCE_EXHAUSTED) {
        free(r);
        return e->code;
    }
    r->dir = xstrdup(dir);
    r->loop = loop;
    uv_timer_init(loop, &r->timer);
    r->timer.data = r;
    uv_unref((uv_handle_t *)&r->timer); /* does not keep the loop alive */
    *out = r;
    return ERR_OK;
}

void metrics_recorder_on_damage(struct metrics_recorder *r, metrics_damage_fn damaged, void *user)
{
    r->damaged = damaged;
    r->damaged_user = user;
}

static int64_t report_step(struct metrics_recorder *r, const struct metric_report *report, int64_t job_step)
{
    const uint64_t key = step_key(report->job, report->spawn);
    void *last = handles_take(&r->last_step, key);
    const int64_t known = last ? (int64_t)(intptr_t)last : job_step;
    const int64_t step = report->line->has_step ? report->line->step : known;
    if (report->line->has_step || last)
        handles_put(&r->last_step, key, (void *)(intptr_t)step);
    return step;
}

static void recorder_add_point(struct metrics_recorder *r, const struct metric_point *point)
{
    struct metrics_work *w = &r->pending;
    /* Drops half of the points at once, so that a full list is not cut again for each new point. */
    if (w->point_count >= METRICS_RECORDER_PENDING) {
        const size_t kept = metrics_shares_cut(w->points, w->point_count, METRICS_RECORDER_PENDING / 2);
        r->dropped += w->point_count - kept;
        w->point_count = kept;
    }
    w->points = array_grow(w->points, w->point_count, &w->point_cap, sizeof *w->points);
    w->points[w->point_count++] = *point;
}

void metrics_recorder_add(struct metrics_recorder *r, const struct metric_report *report, int rank,
                          int64_t job_step)
{
    const int64_t step = report_step(r, report, job_step);
    for (size_t i = 0; i < report->line->count; i++) {
        const struct metric *metric = &report->line->metrics[i];
        if (usage_is_metric(metric->name)) /* its points would mix with those that the node measures */
            continue;
        recorder_add_point(r, &(struct metric_point){.job = report->job,
                                                     .step = step,
                                                     .time_ms = report->time_ms,
                                                     .rank = rank,
                                                     .captured = report->captured != NULL,
                                                     .metric = *metric});
    }
    recorder_arm_timer(r);
}

void metrics_recorder_add_usage(struct metrics_recorder *r, int64_t job, int rank, int64_t second,
                                int64_t wall_ms, const struct usage *usage)
{
    struct metric_point point = {.job = job, .step = second, .time_ms = wall_ms, .rank = rank};
    for (int i = 0; i < USAGE_METRICS; i++) {
        if (isnan(usage->values[i]))
            continue;
        snprintf(point.metric.name, sizeof point.metric.name, "%s", usage_names[i]);
        point.metric.value = usage->values[i];
        recorder_add_point(r, &point);
    }
    recorder_arm_timer(r);
}

void metrics_recorder_forget(struct metrics_recorder *r, int64_t job)
{
    struct metrics_work *w = &r->pending;
    w->forgotten = array_grow(w->forgotten, w->forgotten_count, &w->forgotten_cap, sizeof *w->forgotten);
    w->forgotten[w->forgotten_count++] = job;
    recorder_arm_timer(r);
}

void metrics_recorder_read(struct metrics_recorder *r, struct rpc_call *call,
                           const struct metrics_query *query)
{
    if (r->read_count == METRICS_RECORDER_READS) {
        rpc_call_fail_with(call, ERR_RESOURCE_EXHAUSTED,
                           "%d requests for metrics wait already: try again in some seconds",
                           METRICS_RECORDER_READS);
        return;
    }
    char *name = xstrdup(query->name);
    struct points_read *q = &r->reads[r->read_count++];
    *q = (struct points_read){.call = rpc_call_ref(call), .query = *query, .name = name};
    q->query.name = name;
    recorder_start_work(r);
}

uint64_t metrics_recorder_dropped(const struct metrics_recorder *r)
{
    return r->dropped;
}

static void recorder_on_closed(uv_handle_t *timer)
{
    struct metrics_recorder *r = timer->data;
    free(r->dir);
    free(r);
}

void metrics_recorder_close(struct metrics_recorder *r)
{
    if (!r)
        return;
    while (r->busy) /* the worker uses r until its callback has run, which begins the next read */
        uv_run(r->loop, UV_RUN_ONCE);
    r->running = r->pending;
    r->pending = (struct metrics_work){0};
    if (r->running.point_count || r->running.forgotten_count)
        recorder_run_work(r);
    recorder_finish_work(r);
    metrics_work_release(&r->pending); /* jobs whose points could not be removed */
    metrics_close(r->metrics);
    handles_release(&r->last_step);
    uv_close((uv_handle_t *)&r->timer, recorder_on_closed);
}
