#include "store/metrics.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thinning.h"
#include "base/worker/usage.h"
#include "store/db.h"

#define TRIM_EVERY 256 /* appends */

enum {
    ST_BEGIN,
    ST_COMMIT,
    ST_SERIES,
    ST_NEW_SERIES,
    ST_IS_REPORTED,
    ST_REPORTED,
    ST_DROP_CAPTURED,
    ST_POINT,
    ST_COUNTED,
    ST_NUMBER,
    ST_COUNT
};

struct metrics {
    sqlite3 *db;
    sqlite3_stmt *statements[ST_COUNT];
    uint64_t appends;
    int64_t number; /* of the newest append */
};

/* series.points counts inserts, including those that replace a step. So the limit may be checked too early, but
 * never too late; thinning counts the points again. */
static const char schema[] =
    "CREATE TABLE IF NOT EXISTS series(id INTEGER PRIMARY KEY, job INTEGER NOT NULL, name TEXT NOT NULL,"
    " rank INTEGER NOT NULL, points INTEGER NOT NULL, captured INTEGER NOT NULL DEFAULT 0,"
    " UNIQUE(job, name, rank)) STRICT;"
    "CREATE TABLE IF NOT EXISTS point(series INTEGER NOT NULL REFERENCES series(id) ON DELETE CASCADE,"
    " step INTEGER NOT NULL, time_ms INTEGER NOT NULL, value REAL, append INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY(series, step)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS append(last INTEGER NOT NULL) STRICT;"
    "INSERT INTO append SELECT 0 WHERE NOT EXISTS (SELECT * FROM append);"
    "PRAGMA user_version=2;";
static const char from_version_1[] = "BEGIN;"
                                     "ALTER TABLE series ADD COLUMN captured INTEGER NOT NULL DEFAULT 0;"
                                     "ALTER TABLE point ADD COLUMN append INTEGER NOT NULL DEFAULT 0;"
                                     "PRAGMA user_version=2;"
                                     "COMMIT;";

static const char *const sql[ST_COUNT] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_SERIES] = "SELECT id,points,captured FROM series WHERE job=?1 AND name=?2 AND rank=?3",
    [ST_NEW_SERIES] = "INSERT INTO series(job,name,rank,points,captured) VALUES(?1,?2,?3,0,?4)",
    [ST_IS_REPORTED] = "SELECT 1 FROM series WHERE job=?1 AND name=?2 AND captured=0",
    [ST_REPORTED] = "UPDATE series SET captured=0 WHERE id=?1",
    [ST_DROP_CAPTURED] = "DELETE FROM point WHERE series=?1 AND step>=?2",
    [ST_POINT] = ("INSERT INTO point VALUES(?1,?2,?3,?4,?5)"
                  " ON CONFLICT DO UPDATE SET time_ms=?3,value=?4,append=?5"),
    [ST_COUNTED] = "UPDATE series SET points=points+1 WHERE id=?1",
    [ST_NUMBER] = "UPDATE append SET last=?1",
};

static enum err_code open_at(struct metrics *m, const char *path, struct err *e)
{
    int64_t version;
    if (db_open(&m->db, path, DB_SYNC_OFF, e) != ERR_OK ||
        db_int(m->db, "PRAGMA user_version", 0, &version, e) != ERR_OK ||
        (version == 1 && db_exec(m->db, from_version_1, e) != ERR_OK) ||
        db_exec(m->db, schema, e) != ERR_OK ||
        db_int(m->db, "SELECT last FROM append", 0, &m->number, e) != ERR_OK)
        return e->code;
    for (int i = 0; i < ST_COUNT; i++)
        if (db_prepare(m->db, sql[i], &m->statements[i], e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

static void metrics_release(struct metrics *m)
{
    for (int i = 0; i < ST_COUNT; i++)
        db_finalize(&m->statements[i]);
    db_close(&m->db);
}

/* Removes the log and index files, too: a new database must not find another database's log. */
static enum err_code move_aside(const char *path, const char *why, struct err *e)
{
    static const char *const suffixes[] = {"-wal", "-shm"};
    CLEANUP(free_text) char *bad = xasprintf("%s.bad", path);
    if (rename(path, bad) != 0)
        return err_sys(e, errno, "rename %s to %s", path, bad);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        CLEANUP(free_text) char *side = xasprintf("%s%s", path, suffixes[i]);
        (void)unlink(side);
    }
    log_warn("metrics_moved_aside", "to=%s why=%s", LOG_Q(bad), LOG_Q(why));
    return ERR_OK;
}

enum err_code metrics_open(struct metrics **out, const char *dir, struct err *e)
{
    struct metrics *m = xcalloc(1, sizeof *m);
    CLEANUP(free_text) char *path = xasprintf("%s/metrics.db", dir);
    if (open_at(m, path, e) != ERR_OK && (e->code == ERR_DATA_LOSS || e->code == ERR_INTERNAL)) {
        CLEANUP(free_text) char *why = xstrdup(e->msg);
        metrics_release(m);
        if (move_aside(path, why, e) == ERR_OK)
            (void)(open_at(m, path, e) == ERR_OK);
    }
    if (!m->statements[ST_COUNT - 1]) {
        metrics_close(m);
        return e->code;
    }
    *out = m;
    return ERR_OK;
}

enum err_code metrics_replace(struct metrics **m, const char *dir, const char *why, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/metrics.db", dir);
    const int64_t number = (*m)->number;
    metrics_close(*m);
    *m = NULL;
    if (move_aside(path, why, e) != ERR_OK || metrics_open(m, dir, e) != ERR_OK)
        return e->code;
    if ((*m)->number < number)
        (*m)->number = number; /* readers know it, and the clock may have been set back since */
    return ERR_OK;
}

void metrics_close(struct metrics *m)
{
    if (!m)
        return;
    metrics_release(m);
    free(m);
}

static void free_steps(int64_t **steps)
{
    free(*steps);
}

struct stored_series {
    int64_t id, points;
    bool captured;
};

static enum err_code find_series(struct metrics *m, const struct metric_point *p, struct stored_series *out,
                                 struct err *e)
{
    sqlite3_stmt *st = m->statements[ST_SERIES];
    sqlite3_bind_int64(st, 1, p->job);
    sqlite3_bind_text(st, 2, p->metric.name, -1, SQLITE_STATIC);
    sqlite3_bind_int(st, 3, p->rank);
    const int rc = sqlite3_step(st);
    const bool found = rc == SQLITE_ROW;
    *out = (struct stored_series){.captured = p->captured};
    if (found)
        *out = (struct stored_series){.id = sqlite3_column_int64(st, 0),
                                      .points = sqlite3_column_int64(st, 1),
                                      .captured = sqlite3_column_int(st, 2) != 0};
    sqlite3_reset(st);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return db_error(m->db, rc, e, "series");
    if (found)
        return ERR_OK;
    st = m->statements[ST_NEW_SERIES]; /* the first point of this job, name and rank */
    sqlite3_bind_int64(st, 1, p->job);
    sqlite3_bind_text(st, 2, p->metric.name, -1, SQLITE_STATIC);
    sqlite3_bind_int(st, 3, p->rank);
    sqlite3_bind_int(st, 4, p->captured);
    if (db_step_done(st, "series", e) != ERR_OK)
        return e->code;
    out->id = sqlite3_last_insert_rowid(m->db);
    return ERR_OK;
}

/* The steps of a series in ascending order. The caller frees *out. */
static enum err_code series_steps(struct metrics *m, int64_t series, int64_t **out, size_t *count,
                                  struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    CLEANUP(free_steps) int64_t *steps = NULL;
    size_t n = 0, cap = 0;
    int rc;
    if (db_prepare(m->db, "SELECT step FROM point WHERE series=?1 ORDER BY step", &st, e) != ERR_OK)
        return e->code;
    sqlite3_bind_int64(st, 1, series);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        steps = array_grow(steps, n, &cap, sizeof *steps);
        steps[n++] = sqlite3_column_int64(st, 0);
    }
    if (rc != SQLITE_DONE)
        return db_error(m->db, rc, e, "steps");
    *out = steal(steps);
    *count = n;
    return ERR_OK;
}

/* The smallest shift at which steps >> shift has at most this number of different values, at least 2. */
static int steps_shift(const int64_t *steps, size_t count, size_t most)
{
    for (int shift = 0;; shift++) {
        size_t different = 1;
        for (size_t i = 1; i < count; i++)
            different += steps[i] >> shift != steps[i - 1] >> shift;
        if (different <= most)
            return shift;
    }
}

/* Keeps one point of each range of steps. The ranges are equally long, and those without points do not count, so neither the start
 * of a long run nor the time before a long pause disappears. Their length is a power of two: the next thinning joins whole
 * ranges. Of a metric whose peaks matter the largest value of a range stays, of others the newest. The first and the last point
 * stay in any case. Counts the points again. */
static enum err_code metrics_thin(struct metrics *m, int64_t series, bool peaks, int64_t most, struct err *e)
{
    CLEANUP(free_steps) int64_t *steps = NULL;
    size_t count = 0;
    if (series_steps(m, series, &steps, &count, e) != ERR_OK)
        return e->code;
    if (count > (size_t)most) { /* else some inserts replaced a step */
        CLEANUP(free_text)
        char *text = xasprintf("DELETE FROM point WHERE series=%lld AND step>%lld AND step<%lld AND step IN"
                               " (SELECT step FROM (SELECT step,row_number() OVER"
                               " (PARTITION BY step>>%d ORDER BY %sstep DESC) AS place FROM point"
                               " WHERE series=%lld) WHERE place>1)",
                               (long long)series, (long long)steps[0], (long long)steps[count - 1],
                               steps_shift(steps, count, (size_t)most / 2 + 1), peaks ? "value DESC," : "",
                               (long long)series);
        if (db_exec(m->db, text, e) != ERR_OK)
            return e->code;
    }
    CLEANUP(free_text)
    char *counted =
        xasprintf("UPDATE series SET points=(SELECT count(*) FROM point WHERE series=%lld) WHERE id=%lld",
                  (long long)series, (long long)series);
    return db_exec(m->db, counted, e);
}

/* Whether some rank of the program reports the metric of this captured point. */
static enum err_code metric_is_reported(struct metrics *m, const struct metric_point *p, bool *out,
                                        struct err *e)
{
    sqlite3_stmt *st = m->statements[ST_IS_REPORTED];
    sqlite3_bind_int64(st, 1, p->job);
    sqlite3_bind_text(st, 2, p->metric.name, -1, SQLITE_STATIC);
    const int rc = sqlite3_step(st);
    sqlite3_reset(st);
    *out = rc == SQLITE_ROW;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? ERR_OK : db_error(m->db, rc, e, "series");
}

/* The program reports what was captured before. */
static enum err_code series_reported(struct metrics *m, int64_t series, int64_t step, struct err *e)
{
    sqlite3_bind_int64(m->statements[ST_DROP_CAPTURED], 1, series);
    sqlite3_bind_int64(m->statements[ST_DROP_CAPTURED], 2, step);
    if (db_step_done(m->statements[ST_DROP_CAPTURED], "point", e) != ERR_OK)
        return e->code;
    sqlite3_bind_int64(m->statements[ST_REPORTED], 1, series);
    return db_step_done(m->statements[ST_REPORTED], "series", e);
}

static enum err_code append_one(struct metrics *m, const struct metric_point *p, struct err *e)
{
    struct stored_series series;
    bool reported = false;
    if (p->captured && metric_is_reported(m, p, &reported, e) != ERR_OK)
        return e->code;
    if (reported)
        return ERR_OK;
    if (find_series(m, p, &series, e) != ERR_OK)
        return e->code;
    if (!p->captured && series.captured && series_reported(m, series.id, p->step, e) != ERR_OK)
        return e->code;
    sqlite3_stmt *st = m->statements[ST_POINT];
    sqlite3_bind_int64(st, 1, series.id);
    sqlite3_bind_int64(st, 2, p->step);
    sqlite3_bind_int64(st, 3, p->time_ms);
    sqlite3_bind_double(st, 4, p->metric.value); /* NaN is stored as NULL and read back as NaN */
    sqlite3_bind_int64(st, 5, m->number);
    if (db_step_done(st, "point", e) != ERR_OK)
        return e->code;
    sqlite3_bind_int64(m->statements[ST_COUNTED], 1, series.id);
    if (db_step_done(m->statements[ST_COUNTED], "series", e) != ERR_OK)
        return e->code;
    const int64_t most = usage_is_metric(p->metric.name) ? METRICS_USAGE_MAX : METRICS_SERIES_MAX;
    if (series.points < most)
        return ERR_OK;
    return metrics_thin(m, series.id, usage_is_peak(p->metric.name), most, e);
}

static enum err_code used_bytes(struct metrics *m, int64_t *out, struct err *e)
{
    const char *text = "SELECT (c.page_count-f.freelist_count)*s.page_size FROM pragma_page_count c,"
                       " pragma_freelist_count f, pragma_page_size s";
    return db_int(m->db, text, 0, out, e);
}

/* The condition that a series is one of usage. */
static char *usage_condition(void)
{
    struct buf text = {0};
    for (int i = 0; i < USAGE_METRICS; i++)
        buf_printf(&text, "%s'%s'", i ? "," : "name IN (", usage_names[i]);
    buf_putc(&text, ')');
    return buf_steal(&text);
}

/* Deletes a tenth of the series at a time, those of usage before what programs reported, and then those of the oldest
 * jobs first. */
enum err_code metrics_trim(struct metrics *m, int64_t bytes, struct err *e)
{
    CLEANUP(free_text) char *is_usage = usage_condition();
    CLEANUP(free_text)
    char *text = xasprintf("DELETE FROM series WHERE id IN (SELECT id FROM series ORDER BY NOT (%s),job,id"
                           " LIMIT 1+(SELECT count(*)/10 FROM series))",
                           is_usage);
    int64_t used, left;
    for (;;) {
        if (used_bytes(m, &used, e) != ERR_OK ||
            db_int(m->db, "SELECT count(*) FROM series", 0, &left, e) != ERR_OK)
            return e->code;
        if (used <= bytes || left == 0)
            return ERR_OK;
        if (db_exec(m->db, text, e) != ERR_OK)
            return e->code;
    }
}

static enum err_code append_all(struct metrics *m, const struct metric_point *points, size_t count,
                                struct err *e)
{
    /* The number is at least the clock's time. A power cut may take away the last numbers, which readers know already; so they
     * are not given again. */
    const int64_t now = clock_wall_ms();
    m->number = m->number >= now ? m->number + 1 : now;
    sqlite3_bind_int64(m->statements[ST_NUMBER], 1, m->number);
    if (db_step_done(m->statements[ST_NUMBER], "append", e) != ERR_OK)
        return e->code;
    for (size_t i = 0; i < count; i++)
        if (append_one(m, &points[i], e) != ERR_OK)
            return e->code;
    return db_step_done(m->statements[ST_COMMIT], "commit", e);
}

enum err_code metrics_append(struct metrics *m, const struct metric_point *points, size_t count,
                             struct err *e)
{
    if (count == 0)
        return ERR_OK;
    if (db_step_done(m->statements[ST_BEGIN], "begin", e) != ERR_OK)
        return e->code;
    if (append_all(m, points, count, e) == ERR_OK)
        return m->appends++ % TRIM_EVERY == 0 ? metrics_trim(m, METRICS_BYTES_MAX, e) : ERR_OK;
    struct err ignored;
    if (!sqlite3_get_autocommit(m->db) && db_exec(m->db, "ROLLBACK", &ignored) != ERR_OK)
        log_warn("metrics_rollback", "why=%s", LOG_Q(ignored.msg));
    return e->code;
}

int64_t metrics_newest(const struct metrics *m)
{
    return m->number;
}

static void read_point(sqlite3_stmt *st, struct metric_point *p)
{
    p->job = sqlite3_column_int64(st, 0);
    snprintf(p->metric.name, sizeof p->metric.name, "%s", (const char *)sqlite3_column_text(st, 1));
    p->rank = sqlite3_column_int(st, 2);
    p->step = sqlite3_column_int64(st, 3);
    p->time_ms = sqlite3_column_int64(st, 4);
    p->metric.value =
        sqlite3_column_type(st, 5) == SQLITE_NULL ? __builtin_nan("") : sqlite3_column_double(st, 5);
    p->captured = sqlite3_column_int(st, 6) != 0;
}

#define ASKED_OF(point) point ".time_ms>=?5 AND " point ".append>?6 AND " point ".append<=?7"
/* Of the newest ?3 points of the series. It is sought in the index, because a job may have a million points, and viewers of the job
 * ask every second. */
#define FIRST_STEP                                                                                           \
    "coalesce((SELECT q.step FROM point q WHERE q.series=s.id AND " ASKED_OF(                                \
        "q") " ORDER BY q.step DESC LIMIT 1 OFFSET ?3-1),-9223372036854775808)"

/* The conditions of a query on series `s`. */
static char *series_conditions(const struct metrics_query *query)
{
    CLEANUP(free_text) char *is_usage = usage_condition();
    return xasprintf("s.job=?1 AND CASE WHEN ?2 IS NULL THEN %s(s.%s) ELSE s.name=?2 END"
                     " AND (?4 IS NULL OR s.rank=?4)",
                     query->usage ? "" : "NOT ", is_usage);
}

/* The points `p` of a query, with their series `s`. */
static char *points_source(const struct metrics_query *query)
{
    CLEANUP(free_text) char *series = series_conditions(query);
    return xasprintf("series s JOIN point p ON p.series=s.id%s WHERE %s AND " ASKED_OF("p"),
                     query->limit ? " AND p.step>=" FIRST_STEP : "", series);
}

static void bind_query(sqlite3_stmt *st, const struct metrics_query *query)
{
    sqlite3_bind_int64(st, 1, query->job);
    sqlite3_bind_text(st, 2, query->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, query->limit && query->limit < INT64_MAX ? (int64_t)query->limit : INT64_MAX);
    if (query->by_rank) /* else NULL */
        sqlite3_bind_int(st, 4, query->rank);
    if (sqlite3_bind_parameter_count(st) == 4)
        return; /* it asks for series only */
    sqlite3_bind_int64(st, 5, query->since_ms ? query->since_ms : INT64_MIN);
    sqlite3_bind_int64(st, 6, query->after ? query->after : INT64_MIN);
    sqlite3_bind_int64(st, 7, query->until ? query->until : INT64_MAX);
}

static enum err_code query_number(struct metrics *m, const char *text, const struct metrics_query *query,
                                  int64_t *out, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (db_prepare(m->db, text, &st, e) != ERR_OK)
        return e->code;
    bind_query(st, query);
    const int rc = sqlite3_step(st);
    if (rc != SQLITE_ROW)
        return db_error(m->db, rc, e, "points");
    *out = sqlite3_column_int64(st, 0);
    return ERR_OK;
}

/* How many points match, or an upper bound of it that is not above `most`. Counting takes nearly as long as reading. Viewers ask
 * every second, and mostly series.points tells that all of them may be read. */
static enum err_code query_count(struct metrics *m, const struct metrics_query *query, int64_t most,
                                 int64_t *out, struct err *e)
{
    CLEANUP(free_text) char *series = series_conditions(query);
    CLEANUP(free_text) char *points = points_source(query);
    CLEANUP(free_text)
    char *bound = xasprintf("SELECT coalesce(sum(min(s.points,?3)),0) FROM series s WHERE %s", series);
    CLEANUP(free_text) char *count = xasprintf("SELECT count(*) FROM %s", points);
    if (query_number(m, bound, query, out, e) != ERR_OK)
        return e->code;
    return *out > most ? query_number(m, count, query, out, e) : ERR_OK;
}

/* Points that a read has collected. `from`: the first point of the series that is being read. */
struct read_result {
    struct metric_point *points;
    size_t count, cap, from;
    int64_t total, most; /* number of points that match; of those that may stay, if it is smaller */
};

/* The series that is being read is complete. Thins it, if the read has too many points. */
static void read_end_series(struct read_result *r)
{
    const size_t all = r->count - r->from;
    if (!all)
        return;
    struct metric_point *points = r->points + r->from;
    const size_t share = r->total > 0 ? (size_t)((double)all * (double)r->most / (double)r->total) : all;
    if (r->total > r->most) {
        double *values = xmalloc(all * sizeof(*values));
        bool *keep = xmalloc(all * sizeof(*keep));
        size_t kept = 0;
        for (size_t i = 0; i < all; i++)
            values[i] = points[i].metric.value;
        thinning_choose(values, all, share / THINNING_KEPT + 1, keep);
        keep[0] = true; /* a bucket keeps its last point, but not its first */
        for (size_t i = 0; i < all; i++)
            if (keep[i])
                points[kept++] = points[i];
        r->count = r->from + kept;
        free(values);
        free(keep);
    }
    r->from = r->count;
}

static enum err_code read_add_point(struct read_result *r, sqlite3_stmt *st, struct err *e)
{
    r->points = array_grow(r->points, r->count, &r->cap, sizeof *r->points);
    struct metric_point *p = &r->points[r->count];
    read_point(st, p);
    if (r->count > r->from && (p->rank != p[-1].rank || strcmp(p->metric.name, p[-1].metric.name) != 0)) {
        const struct metric_point first = *p;
        read_end_series(r);
        r->points[r->count] = first;
    }
    r->count++;
    /* A series that is being read has at most METRICS_SERIES_MAX points, more or less. */
    if (r->from > 2 * (size_t)r->most)
        return err_set(e, ERR_RESOURCE_EXHAUSTED,
                       "job %lld has too many metrics for one request: ask for one metric or one rank",
                       (long long)p->job);
    return ERR_OK;
}

enum err_code metrics_read(struct metrics *m, const struct metrics_query *query, struct metric_point **out,
                           size_t *count, bool *thinned, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    CLEANUP(free_text) char *source = points_source(query);
    CLEANUP(free_text)
    char *text = xasprintf("SELECT s.job,s.name,s.rank,p.step,p.time_ms,p.value,s.captured FROM %s"
                           " ORDER BY s.name,s.rank,p.step",
                           source);
    struct read_result r = {.most = query->most ? (int64_t)query->most : METRICS_READ_MOST};
    enum err_code code = ERR_OK;
    int rc;
    if (query_count(m, query, r.most, &r.total, e) != ERR_OK || db_prepare(m->db, text, &st, e) != ERR_OK)
        return e->code;
    bind_query(st, query);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && code == ERR_OK)
        code = read_add_point(&r, st, e);
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = db_error(m->db, rc, e, "points");
    if (code != ERR_OK) { /* the points that were read are not returned */
        free(r.points);
        return code;
    }
    read_end_series(&r);
    *out = r.points;
    *count = r.count;
    if (thinned)
        *thinned = r.total > r.most;
    return ERR_OK;
}

enum err_code metrics_forget(struct metrics *m, int64_t job, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (db_prepare(m->db, "DELETE FROM series WHERE job=?1", &st, e) != ERR_OK)
        return e->code;
    sqlite3_bind_int64(st, 1, job);
    return db_step_done(st, "series", e);
}
