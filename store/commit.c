#include "store/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/db.h"
#include "store/loss.h"
#include "store/store_state.h"
#include "store/tables.h"

/* A list of changes is one transaction. Each change has a prepared statement. An INSERT, PUT or MOVE that does not
 * change exactly one row contradicts the database. Any error rolls the whole list back, so that the caller can pass
 * the same list again if the error code allows it. */

static const struct {
    enum statement id;
    const char *sql;
} plain_sql[] = {
    {ST_BEGIN, "BEGIN IMMEDIATE"},
    {ST_COMMIT, "COMMIT"},
    {ST_JOB_MOVE, "UPDATE job SET state=?1,reason=?2 WHERE id=?3 AND state=?4"},
    {ST_JOB_PROGRESS, "UPDATE job SET progress=?1 WHERE id=?2"},
    {ST_JOB_FORGET, "DELETE FROM job WHERE id=?1"},
    {ST_JOB_FORGET_EVENTS, "DELETE FROM event WHERE job=?1"},
    {ST_NUMBER_REMOVED, "INSERT OR IGNORE INTO removed_number VALUES(?1)"},
    {ST_META, "INSERT INTO meta VALUES(?1,?2) ON CONFLICT DO UPDATE SET value=excluded.value"},
    {ST_NODE_MOVE, "UPDATE node SET state=?1 WHERE name=?2 AND state=?3"},
    {ST_NODE_DELETE, "DELETE FROM node WHERE name=?1"},
    {ST_GENERATION_MOVE, "UPDATE generation SET state=?1,reason=?2 WHERE job=?3 AND number=?4 AND state=?5"},
    {ST_GENERATION_DELETE,
     "DELETE FROM generation WHERE job=?1 AND number=?2"}, /* the ranks by their foreign key */
    {ST_RANK_MOVE, "UPDATE rank SET state=?1 WHERE job=?2 AND generation=?3 AND rank=?4 AND state=?5"},
    {ST_SNAPSHOT_DELETE, "DELETE FROM snapshot WHERE job=?1 AND generation=?2 AND step=?3"},
    {ST_EVENT_INSERT, "INSERT INTO event(time_ms,job,generation,what,text) VALUES(?1,?2,?3,?4,?5)"},
    {ST_USER_DELETE, "DELETE FROM user WHERE name=?1"},
    {ST_AUDIT_INSERT, "INSERT INTO audit(time_ms,who,origin,what,job,text) VALUES(?1,?2,?3,?4,?5,?6)"},
    {ST_SEQUENCE, "UPDATE meta SET value=?1 WHERE key='sequence'"},
    {ST_NOTICE_INSERT, "INSERT INTO notice(time_ms,job,generation,hook,what,text,name,user,node,url,shape)"
                       " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)"},
};

static const struct {
    enum statement id;
    const struct table *table;
    void (*sql)(struct buf *out, const struct table *t);
} table_sql[] = {
    {ST_JOB_INSERT, &job_table, row_sql_insert},
    {ST_JOB_PUT, &job_table, row_sql_put},
    {ST_NODE_INSERT, &node_table, row_sql_insert},
    {ST_NODE_PUT, &node_table, row_sql_put},
    {ST_GENERATION_INSERT, &generation_table, row_sql_insert},
    {ST_GENERATION_PUT, &generation_table, row_sql_put},
    {ST_RANK_INSERT, &rank_table, row_sql_insert},
    {ST_RANK_PUT, &rank_table, row_sql_put},
    {ST_SPAWN_INSERT, &spawn_table, row_sql_insert},
    {ST_SPAWN_PUT, &spawn_table, row_sql_put},
    {ST_SNAPSHOT_PUT, &snapshot_table, row_sql_upsert},
    {ST_USER_PUT, &user_table, row_sql_upsert},
};

enum err_code commit_prepare(struct store *s, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(plain_sql); i++)
        if (db_prepare(s->db, plain_sql[i].sql, &s->statements[plain_sql[i].id], e) != ERR_OK)
            return e->code;
    for (size_t i = 0; i < ARRAY_LEN(table_sql); i++) {
        CLEANUP(buf_release) struct buf sql = {0};
        table_sql[i].sql(&sql, table_sql[i].table);
        if (db_prepare(s->db, sql.data, &s->statements[table_sql[i].id], e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

static enum err_code commit_step_one_row(struct store *s, sqlite3_stmt *st, const char *what, struct err *e)
{
    if (db_step_done(st, what, e) != ERR_OK)
        return e->code;
    if (sqlite3_changes(s->db) != 1)
        return err_set(e, ERR_INTERNAL, "%s: the row is missing, or is not in the expected state", what);
    return ERR_OK;
}

static enum err_code commit_write_row(struct store *s, enum statement id, const struct table *t,
                                      const void *record, bool insert, struct err *e)
{
    sqlite3_stmt *st = s->statements[id];
    if (row_bind(st, t, record, insert, e) != ERR_OK)
        return e->code;
    return commit_step_one_row(s, st, t->name, e);
}

static void commit_bind_text(sqlite3_stmt *st, int index, const char *text)
{
    sqlite3_bind_text(st, index, text, -1, SQLITE_STATIC);
}

static enum err_code commit_move_job(struct store *s, const struct change *c, struct err *e)
{
    sm_check(&job_sm, c->from, c->to);
    sqlite3_stmt *st = s->statements[ST_JOB_MOVE];
    commit_bind_text(st, 1, sm_name(&job_sm, c->to));
    commit_bind_text(st, 2, c->text);
    sqlite3_bind_int64(st, 3, c->id);
    commit_bind_text(st, 4, sm_name(&job_sm, c->from));
    return commit_step_one_row(s, st, "job move", e);
}

static enum err_code commit_put_progress(struct store *s, const struct change *c, struct err *e)
{
    sqlite3_stmt *st = s->statements[ST_JOB_PROGRESS];
    commit_bind_text(st, 1, c->text);
    sqlite3_bind_int64(st, 2, c->id);
    return commit_step_one_row(s, st, "job progress", e);
}

static enum err_code commit_move_node(struct store *s, const struct change *c, struct err *e)
{
    sm_check(&node_sm, c->from, c->to);
    sqlite3_stmt *st = s->statements[ST_NODE_MOVE];
    commit_bind_text(st, 1, sm_name(&node_sm, c->to));
    commit_bind_text(st, 2, c->name);
    commit_bind_text(st, 3, sm_name(&node_sm, c->from));
    return commit_step_one_row(s, st, "node move", e);
}

static enum err_code commit_move_generation(struct store *s, const struct change *c, struct err *e)
{
    sm_check(&generation_sm, c->from, c->to);
    sqlite3_stmt *st = s->statements[ST_GENERATION_MOVE];
    commit_bind_text(st, 1, sm_name(&generation_sm, c->to));
    commit_bind_text(st, 2, c->text);
    sqlite3_bind_int64(st, 3, c->id);
    sqlite3_bind_int64(st, 4, c->generation_number);
    commit_bind_text(st, 5, sm_name(&generation_sm, c->from));
    return commit_step_one_row(s, st, "generation move", e);
}

static enum err_code commit_move_rank(struct store *s, const struct change *c, struct err *e)
{
    sm_check(&rank_sm, c->from, c->to);
    sqlite3_stmt *st = s->statements[ST_RANK_MOVE];
    commit_bind_text(st, 1, sm_name(&rank_sm, c->to));
    sqlite3_bind_int64(st, 2, c->id);
    sqlite3_bind_int64(st, 3, c->generation_number);
    sqlite3_bind_int(st, 4, c->rank_number);
    commit_bind_text(st, 5, sm_name(&rank_sm, c->from));
    return commit_step_one_row(s, st, "rank move", e);
}

enum err_code commit_event(struct store *s, const struct event_record *event, struct err *e)
{
    sqlite3_stmt *st = s->statements[ST_EVENT_INSERT];
    sqlite3_bind_int64(st, 1, event->time_ms);
    sqlite3_bind_int64(st, 2, event->job);
    sqlite3_bind_int64(st, 3, event->generation);
    commit_bind_text(st, 4, event->what);
    commit_bind_text(st, 5, event->text);
    return db_step_done(st, "event", e);
}

static enum err_code append_audit(struct store *s, const struct audit_record *audit, struct err *e)
{
    sqlite3_stmt *st = s->statements[ST_AUDIT_INSERT];
    sqlite3_bind_int64(st, 1, audit->time_ms);
    commit_bind_text(st, 2, audit->who);
    commit_bind_text(st, 3, audit->origin);
    commit_bind_text(st, 4, audit->what);
    sqlite3_bind_int64(st, 5, audit->job);
    commit_bind_text(st, 6, audit->text);
    return db_step_done(st, "audit", e);
}

static enum err_code append_notice(struct store *s, const struct notice_record *n, struct err *e)
{
    const char *const texts[] = {n->hook, n->what, n->text, n->name, n->user, n->node, n->url};
    sqlite3_stmt *st = s->statements[ST_NOTICE_INSERT];
    sqlite3_bind_int64(st, 1, n->time_ms);
    sqlite3_bind_int64(st, 2, n->job);
    sqlite3_bind_int64(st, 3, n->generation);
    for (int i = 0; i < (int)ARRAY_LEN(texts); i++)
        commit_bind_text(st, 4 + i, texts[i] ? texts[i] : "");
    sqlite3_bind_int64(st, 11, n->shape);
    return db_step_done(st, "notice", e);
}

static enum err_code delete_user(struct store *s, const char *name, struct err *e)
{
    commit_bind_text(s->statements[ST_USER_DELETE], 1, name);
    return commit_step_one_row(s, s->statements[ST_USER_DELETE], "user", e);
}

enum err_code commit_sequence(struct store *s, int64_t sequence, struct err *e)
{
    sqlite3_stmt *st = s->statements[ST_SEQUENCE];
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, sequence);
    commit_bind_text(st, 1, text);
    return commit_step_one_row(s, st, "sequence", e);
}

static enum err_code delete_node(struct store *s, const char *name, struct err *e)
{
    commit_bind_text(s->statements[ST_NODE_DELETE], 1, name);
    return commit_step_one_row(s, s->statements[ST_NODE_DELETE], "node", e);
}

static enum err_code delete_generation(struct store *s, const struct change *c, struct err *e)
{
    sqlite3_stmt *st = s->statements[ST_GENERATION_DELETE];
    sqlite3_bind_int64(st, 1, c->id);
    sqlite3_bind_int64(st, 2, c->generation_number);
    return commit_step_one_row(s, st, "generation", e);
}

static enum err_code delete_snapshot(struct store *s, const struct snapshot_record *snapshot, struct err *e)
{
    sqlite3_stmt *st = s->statements[ST_SNAPSHOT_DELETE];
    sqlite3_bind_int64(st, 1, snapshot->job);
    sqlite3_bind_int64(st, 2, snapshot->generation);
    sqlite3_bind_int64(st, 3, snapshot->step);
    return commit_step_one_row(s, st, "snapshot", e);
}

static enum err_code clear_job(struct store *s, int64_t id, struct err *e)
{
    sqlite3_bind_int64(s->statements[ST_JOB_FORGET], 1, id);
    return commit_step_one_row(s, s->statements[ST_JOB_FORGET], "job", e);
}

static enum err_code forget_job(struct store *s, int64_t id, struct err *e)
{
    sqlite3_bind_int64(s->statements[ST_JOB_FORGET_EVENTS], 1, id);
    if (db_step_done(s->statements[ST_JOB_FORGET_EVENTS], "event", e) != ERR_OK)
        return e->code;
    return clear_job(s, id, e);
}

static enum err_code commit_put_meta(struct store *s, const char *key, int64_t value, struct err *e)
{
    char text[24];

    snprintf(text, sizeof text, "%lld", (long long)value);
    commit_bind_text(s->statements[ST_META], 1, key);
    commit_bind_text(s->statements[ST_META], 2, text);
    return db_step_done(s->statements[ST_META], "meta", e);
}

static enum err_code change_apply(struct store *s, const struct change *c, struct err *e)
{
    /* INSERT fails for an existing row, PUT for a missing one; snapshots and users are inserted or replaced. */
    switch (c->kind) {
    case CHANGE_JOB_INSERT:
        return commit_write_row(s, ST_JOB_INSERT, &job_table, c->job, true, e);
    case CHANGE_JOB_PUT:
        return commit_write_row(s, ST_JOB_PUT, &job_table, c->job, false, e);
    case CHANGE_JOB_MOVE:
        return commit_move_job(s, c, e);
    case CHANGE_NODE_INSERT:
        return commit_write_row(s, ST_NODE_INSERT, &node_table, c->node, true, e);
    case CHANGE_NODE_PUT:
        return commit_write_row(s, ST_NODE_PUT, &node_table, c->node, false, e);
    case CHANGE_NODE_MOVE:
        return commit_move_node(s, c, e);
    case CHANGE_NODE_DELETE:
        return delete_node(s, c->name, e);
    case CHANGE_GENERATION_INSERT:
        return commit_write_row(s, ST_GENERATION_INSERT, &generation_table, c->generation, true, e);
    case CHANGE_GENERATION_PUT:
        return commit_write_row(s, ST_GENERATION_PUT, &generation_table, c->generation, false, e);
    case CHANGE_GENERATION_MOVE:
        return commit_move_generation(s, c, e);
    case CHANGE_GENERATION_DELETE:
        return delete_generation(s, c, e);
    case CHANGE_RANK_INSERT:
        return commit_write_row(s, ST_RANK_INSERT, &rank_table, c->rank, true, e);
    case CHANGE_RANK_PUT:
        return commit_write_row(s, ST_RANK_PUT, &rank_table, c->rank, false, e);
    case CHANGE_RANK_MOVE:
        return commit_move_rank(s, c, e);
    case CHANGE_SPAWN_INSERT:
        return commit_write_row(s, ST_SPAWN_INSERT, &spawn_table, c->spawn, true, e);
    case CHANGE_SPAWN_PUT:
        return commit_write_row(s, ST_SPAWN_PUT, &spawn_table, c->spawn, false, e);
    case CHANGE_SNAPSHOT_PUT:
        return commit_write_row(s, ST_SNAPSHOT_PUT, &snapshot_table, c->snapshot, true, e);
    case CHANGE_SNAPSHOT_DELETE:
        return delete_snapshot(s, c->snapshot, e);
    case CHANGE_EVENT:
        return commit_event(s, c->event, e);
    case CHANGE_JOB_PROGRESS:
        return commit_put_progress(s, c, e);
    case CHANGE_JOB_FORGET:
        return forget_job(s, c->id, e);
    case CHANGE_USER_PUT:
        return commit_write_row(s, ST_USER_PUT, &user_table, c->user, true, e);
    case CHANGE_USER_DELETE:
        return delete_user(s, c->name, e);
    case CHANGE_AUDIT:
        return append_audit(s, c->audit, e);
    case CHANGE_JOB_CLEAR:
        return clear_job(s, c->id, e);
    case CHANGE_LOST_NUMBER_REMOVED:
        sqlite3_bind_int64(s->statements[ST_NUMBER_REMOVED], 1, c->id);
        return db_step_done(s->statements[ST_NUMBER_REMOVED], "removed number", e);
    case CHANGE_META:
        return commit_put_meta(s, c->name, c->id, e);
    case CHANGE_NOTICE:
        return append_notice(s, c->notice, e);
    }
    return err_set(e, ERR_INTERNAL, "unknown kind of change: %d", (int)c->kind);
}

/* If a write fails, the log lacks a part of the list, so the list is not committed. After any other failure, for example of a sync,
 * the log may hold the whole list, and the next start would take it for committed. */
static enum err_code commit_end(struct store *s, struct err *e)
{
    if (db_step_done(s->statements[ST_COMMIT], "commit", e) == ERR_OK)
        return ERR_OK;
    const int rc = sqlite3_extended_errcode(s->db);
    s->unsure |= rc != SQLITE_FULL && rc != SQLITE_IOERR_WRITE;
    return e->code;
}

static enum err_code change_apply_all(struct store *s, const struct change *changes, size_t count,
                                      struct err *e)
{
    for (size_t i = 0; i < count; i++)
        if (change_apply(s, &changes[i], e) != ERR_OK)
            return err_wrap(e, "change %zu of %zu", i + 1, count);
    /* The number of commits is part of the same transaction, so the database always has the right number. */
    if (commit_sequence(s, s->mark.sequence + 1, e) != ERR_OK)
        return e->code;
    if (fault_hit("store.commit"))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "store.commit: fault point");
    return commit_end(s, e);
}

/* The mark of a database to which the list has just been applied. */
static void commit_advance_mark(struct mark *mark, const struct change *changes, size_t count)
{
    mark->sequence++;
    for (size_t i = 0; i < count; i++) {
        if (changes[i].kind == CHANGE_JOB_FORGET || changes[i].kind == CHANGE_JOB_CLEAR)
            mark->jobs--;
        if (changes[i].kind == CHANGE_META && !strcmp(changes[i].name, "epoch"))
            mark->epoch = changes[i].id;
        if (changes[i].kind != CHANGE_JOB_INSERT)
            continue;
        mark->jobs++;
        if (changes[i].job->id > mark->last_job)
            mark->last_job = changes[i].job->id;
    }
}

/* An acknowledged commit must be durable, and a later start must be able to detect its loss. So the mark
 * is on disk before the commit is reported to anybody. */
static enum err_code commit_save_mark(struct store *s, struct err *e)
{
    return s->mark_file.fd >= 0 ? mark_write(&s->mark_file, &s->mark, e) : ERR_OK;
}

/* The caller repeats a failed commit now and then, on a thread that has other work. So only the first attempt waits for another
 * process that holds the write lock. */
static enum err_code commit_begin(struct store *s, struct err *e)
{
    const enum err_code code = db_step_done(s->statements[ST_BEGIN], "begin", e);
    sqlite3_busy_timeout(s->db, code == ERR_UNAVAILABLE ? 0 : DB_BUSY_MS);
    return code;
}

static enum err_code commit_list(struct store *s, const struct change *changes, size_t count, struct err *e)
{
    /* A commit to a deleted file would succeed, but would be lost when this process ends. */
    if (loss_check_moved(s, e) != ERR_OK || commit_begin(s, e) != ERR_OK)
        return e->code;
    if (change_apply_all(s, changes, count, e) == ERR_OK) {
        (void)fault_hit(
            "store.committed"); /* The list is durable but not acknowledged: of the fault actions only kill is useful here. */
        commit_advance_mark(&s->mark, changes, count);
        s->unsure = false;
        return ERR_OK;
    }
    /* After some errors, such as a full disk, SQLite has already rolled back. */
    struct err ignored;
    if (!sqlite3_get_autocommit(s->db) && db_exec(s->db, "ROLLBACK", &ignored) != ERR_OK)
        log_error("rollback", "why=%s", LOG_Q(ignored.msg));
    return e->code;
}

enum err_code store_commit(struct store *s, const struct change *changes, size_t count, struct err *e)
{
    if (s->deferred && store_resume(s, e) != ERR_OK)
        return e->code;
    /* If writing the mark failed, the list is in the database already. The caller passes it again, perhaps
     * with more changes behind it. The changes that were applied are not applied twice. */
    const size_t applied = s->applied;
    BUG_ON(applied > count);
    if (applied && commit_save_mark(s, e) != ERR_OK)
        return e->code;
    if (count > applied) {
        if (commit_list(s, changes + applied, count - applied, e) != ERR_OK)
            return e->code;
        s->applied = count;
        if (commit_save_mark(s, e) != ERR_OK)
            return e->code;
    }
    s->applied = 0;
    return ERR_OK;
}

bool store_in_doubt(const struct store *s)
{
    return s->applied || s->unsure;
}
