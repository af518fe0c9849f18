#include "store/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "store/db.h"
#include "store/loss.h"
#include "store/store_state.h"
#include "store/tables.h"

#define UNFINISHED "(SELECT id FROM job WHERE state NOT IN ('succeeded','failed','cancelled'))"

/* Of a finished job only these generations: the last, the last failed one, the last two that an error of the program ended
 * (they say why the job did not start again), and those whose spawns still hold slots. */
#define KEPT                                                                                                 \
    "job IN " UNFINISHED " OR number=(SELECT generation FROM job WHERE id=generation.job)"                   \
    " OR number=(SELECT max(number) FROM generation AS g WHERE g.job=generation.job AND g.failed_spawn>0)"   \
    " OR number IN (SELECT g.number FROM generation AS g WHERE g.job=generation.job AND g.error<>0"          \
    " ORDER BY g.number DESC LIMIT 2)"                                                                       \
    " OR EXISTS(SELECT 1 FROM spawn CROSS JOIN rank WHERE spawn.dead=0 AND spawn.job=generation.job"         \
    " AND rank.job=spawn.job AND rank.generation=generation.number AND rank.spawn=spawn.spawn)"
#define OF_KEPT "(job,generation) IN (SELECT job,number FROM generation WHERE " KEPT ")"
/* Once each, however many of these generations have the spawn as a member. */
#define SPAWN_OF_KEPT "(job,spawn) IN (SELECT job,spawn FROM rank WHERE " OF_KEPT ")"

enum err_code load_rows(struct store *s, const struct table *t, const char *where, int64_t parameter,
                        void *array_at, size_t *count, struct err *e)
{
    CLEANUP(buf_release) struct buf sql = {0};
    row_sql_select(&sql, t);
    buf_printf(&sql, " %s", where);
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (db_prepare(s->db, sql.data, &st, e) != ERR_OK)
        return e->code;
    if (sqlite3_bind_parameter_count(st) > 0) /* not every condition has a parameter */
        sqlite3_bind_int64(st, 1, parameter);
    char *array = NULL;
    size_t cap = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        array = array_grow(array, *count, &cap, t->record_size);
        memcpy(array_at, &array, sizeof array);
        void *record = array + *count * t->record_size;
        memset(record, 0, t->record_size);
        (*count)++; /* before the row is read: a failure leaves a part, which the caller releases */
        if (row_read(st, t, record, e) != ERR_OK)
            return e->code;
    }
    return rc == SQLITE_DONE ? ERR_OK : db_error(s->db, rc, e, t->name);
}

#define META(key) "SELECT CAST(value AS INTEGER) FROM meta WHERE key='" key "'"

static enum err_code load_next_job(struct store *s, struct records *out, struct err *e)
{
    if (db_int(s->db, "SELECT seq+1 FROM sqlite_sequence WHERE name='job'", 1, &out->next_job, e) != ERR_OK ||
        db_int(s->db, META("gap_from"), s->loss.epoch ? s->loss.first_job : 0, &out->gap_from, e) != ERR_OK ||
        db_int(s->db, META("gap_to"), 0, &out->gap_to, e) != ERR_OK)
        return e->code;
    int64_t age;
    if (db_int(s->db, META("restored"), RECORDS_NEW, &age, e) != ERR_OK ||
        db_int(s->db, META("clock_ms"), 0, &out->clock_ms, e) != ERR_OK)
        return e->code;
    out->age = (enum records_age)age;
    if (s->loss.last_job && out->gap_to <= s->loss.last_job)
        out->gap_to = s->loss.last_job + 1;
    if (out->next_job < out->gap_to)
        out->next_job = out->gap_to;
    return ERR_OK;
}

static enum err_code load_removed(struct store *s, struct records *out, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (db_prepare(s->db, "SELECT job FROM removed_number ORDER BY job", &st, e) != ERR_OK)
        return e->code;
    size_t cap = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        out->removed = array_grow(out->removed, out->removed_count, &cap, sizeof *out->removed);
        out->removed[out->removed_count++] = sqlite3_column_int64(st, 0);
    }
    return rc == SQLITE_DONE ? ERR_OK : db_error(s->db, rc, e, "removed_number");
}

enum err_code store_load(struct store *s, struct records *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    if (load_next_job(s, out, e) != ERR_OK || load_removed(s, out, e) != ERR_OK ||
        load_rows(s, &job_table, "ORDER BY id", 0, &out->jobs, &out->job_count, e) != ERR_OK ||
        load_rows(s, &node_table, "ORDER BY name", 0, &out->nodes, &out->node_count, e) != ERR_OK ||
        load_rows(s, &generation_table, "WHERE " KEPT " ORDER BY job,number", 0, &out->generations,
                  &out->generation_count, e) != ERR_OK ||
        load_rows(s, &rank_table, "WHERE " OF_KEPT " ORDER BY job,generation,rank", 0, &out->ranks,
                  &out->rank_count, e) != ERR_OK ||
        load_rows(s, &spawn_table, "WHERE " SPAWN_OF_KEPT " ORDER BY job,spawn", 0, &out->spawns,
                  &out->spawn_count, e) != ERR_OK ||
        load_rows(s, &snapshot_table, "ORDER BY job,generation,step", 0, &out->snapshots,
                  &out->snapshot_count, e) != ERR_OK)
        return e->code;
    return ERR_OK;
}

enum err_code store_load_job(struct store *s, int64_t job, struct records *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    if (load_next_job(s, out, e) != ERR_OK ||
        load_rows(s, &job_table, "WHERE id=?1", job, &out->jobs, &out->job_count, e) != ERR_OK)
        return e->code;
    if (out->job_count == 0)
        return err_set(e, ERR_NOT_FOUND, "there is no job %lld", (long long)job);
    if (load_rows(s, &generation_table, "WHERE job=?1 ORDER BY number", job, &out->generations,
                  &out->generation_count, e) != ERR_OK ||
        load_rows(s, &rank_table, "WHERE job=?1 ORDER BY generation,rank", job, &out->ranks, &out->rank_count,
                  e) != ERR_OK ||
        load_rows(s, &spawn_table, "WHERE job=?1 ORDER BY spawn", job, &out->spawns, &out->spawn_count, e) !=
            ERR_OK ||
        load_rows(s, &snapshot_table, "WHERE job=?1 ORDER BY generation,step", job, &out->snapshots,
                  &out->snapshot_count, e) != ERR_OK)
        return e->code;
    return ERR_OK;
}

enum err_code store_job_nodes(struct store *s, int64_t job, char ***out, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    *out = NULL;
    if (db_prepare(s->db, "SELECT DISTINCT node FROM spawn WHERE job=?1 ORDER BY node", &st, e) != ERR_OK)
        return e->code;
    sqlite3_bind_int64(st, 1, job);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        *out = strv_append(*out, (const char *)sqlite3_column_text(st, 0));
    return rc == SQLITE_DONE ? ERR_OK : db_error(s->db, rc, e, "spawn");
}

enum err_code store_events(struct store *s, int64_t job, int64_t after, size_t limit,
                           struct event_record **out, size_t *count, struct err *e)
{
    struct event_record *events = NULL;
    size_t loaded = 0;
    CLEANUP(free_text) char *where = NULL;
    if (after)
        where = xasprintf("WHERE job=?1 AND id>%lld ORDER BY id LIMIT %zu", (long long)after, limit);
    else
        where = xasprintf(
            "WHERE id IN (SELECT id FROM event WHERE job=?1 ORDER BY id DESC LIMIT %zu) ORDER BY id", limit);
    if (load_rows(s, &event_table, where, job, &events, &loaded, e) != ERR_OK) {
        store_events_free(events, loaded);
        return e->code;
    }
    *out = events;
    *count = loaded;
    return ERR_OK;
}

void store_events_free(struct event_record *events, size_t count)
{
    for (size_t i = 0; i < count; i++)
        event_record_release(&events[i]);
    free(events);
}

/* ---- retention of events
 *
 * Only a job that got an event since the last trim can have too many, so the trim visits the events in the order of their ids, each once,
 * and meta has the last one that it visited. It runs on the loop between other work, so it does a bounded part at a time. */

#define TRIM_EVENTS 10000 /* visited at a time */
#define TRIM_JOBS 256     /* of these events, likewise: of each job up to `keep` events are counted */

struct event_trim {
    int64_t jobs[TRIM_JOBS];
    size_t count;
    int64_t from, to; /* the events after `from`, up to `to`, are of these jobs */
    int events;
};

static bool trim_add_job(struct event_trim *t, int64_t job)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->jobs[i] == job)
            return true;
    if (t->count == TRIM_JOBS)
        return false;
    t->jobs[t->count++] = job;
    return true;
}

static enum err_code trim_find_jobs(struct store *s, struct event_trim *t, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    int rc;
    if (db_int(s->db, META("events_trimmed"), 0, &t->from, e) != ERR_OK ||
        db_prepare(s->db, "SELECT id,job FROM event WHERE id>?1 ORDER BY id LIMIT ?2", &st, e) != ERR_OK)
        return e->code;
    t->to = t->from;
    sqlite3_bind_int64(st, 1, t->from);
    sqlite3_bind_int(st, 2, TRIM_EVENTS);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && trim_add_job(t, sqlite3_column_int64(st, 1))) {
        t->to = sqlite3_column_int64(st, 0);
        t->events++;
    }
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? ERR_OK : db_error(s->db, rc, e, "event");
}

static enum err_code trim_delete_events(struct store *s, const struct event_trim *t, int64_t keep,
                                        struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    const char *sql = "DELETE FROM event WHERE job=?1 AND id<="
                      "(SELECT id FROM event WHERE job=?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)";
    if (db_prepare(s->db, sql, &st, e) != ERR_OK ||
        db_step_done(s->statements[ST_BEGIN], "begin", e) != ERR_OK)
        return e->code;
    for (size_t i = 0; i < t->count; i++) {
        sqlite3_bind_int64(st, 1, t->jobs[i]);
        sqlite3_bind_int64(st, 2, keep);
        if (db_step_done(st, "trim events", e) != ERR_OK)
            return e->code;
    }
    if (loss_put(s, "events_trimmed", t->to, e) != ERR_OK)
        return e->code;
    return db_step_done(s->statements[ST_COMMIT], "commit", e);
}

enum err_code store_trim_events(struct store *s, int64_t keep, bool *more, struct err *e)
{
    struct event_trim t = {0};
    struct err ignored;
    *more = false;
    if (trim_find_jobs(s, &t, e) != ERR_OK)
        return e->code;
    if (t.count == 0)
        return ERR_OK;
    if (trim_delete_events(s, &t, keep, e) != ERR_OK) {
        if (!sqlite3_get_autocommit(s->db) && db_exec(s->db, "ROLLBACK", &ignored) != ERR_OK)
            log_warn("trim_rollback", "why=%s", LOG_Q(ignored.msg));
        return e->code;
    }
    *more = t.events == TRIM_EVENTS || t.count == TRIM_JOBS;
    return ERR_OK;
}
