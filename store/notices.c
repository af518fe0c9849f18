#include "store/notices.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "store/db.h"
#include "store/row.h"
#include "store/store_state.h"
#include "store/tables.h"

enum err_code store_notice_queues(struct store *s, struct notice_queue **out, size_t *count, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    struct notice_queue *queues = NULL;
    size_t found = 0, cap = 0;
    int rc;
    if (db_prepare(s->db, "SELECT hook,count(*) FROM notice GROUP BY hook ORDER BY hook", &st, e) != ERR_OK)
        return e->code;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        queues = array_grow(queues, found, &cap, sizeof *queues);
        queues[found++] = (struct notice_queue){.hook = xstrdup((const char *)sqlite3_column_text(st, 0)),
                                                .waiting = sqlite3_column_int64(st, 1)};
    }
    if (rc != SQLITE_DONE) {
        store_notice_queues_free(queues, found);
        return db_error(s->db, rc, e, "notice");
    }
    *out = queues;
    *count = found;
    return ERR_OK;
}

void store_notice_queues_free(struct notice_queue *queues, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(queues[i].hook);
    free(queues);
}

/* Prepares a statement that has a hook as ?1 and a number as ?2. */
static enum err_code notice_prepare(struct store *s, const char *sql, const char *hook, int64_t number,
                                    sqlite3_stmt **st, struct err *e)
{
    if (db_prepare(s->db, sql, st, e) != ERR_OK)
        return e->code;
    sqlite3_bind_text(*st, 1, hook, -1, SQLITE_STATIC);
    sqlite3_bind_int64(*st, 2, number);
    return ERR_OK;
}

/* Runs a statement that always has one row, of one number. */
static enum err_code notice_number(struct store *s, sqlite3_stmt *st, int64_t *out, struct err *e)
{
    const int rc = sqlite3_step(st);
    if (rc != SQLITE_ROW)
        return db_error(s->db, rc, e, "notice");
    *out = sqlite3_column_int64(st, 0);
    return ERR_OK;
}

enum err_code store_notice_next(struct store *s, const char *hook, int64_t after, struct notice_record *out,
                                struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    CLEANUP(buf_release) struct buf sql = {0};
    *out = (struct notice_record){0};
    row_sql_select(&sql, &notice_table);
    buf_puts(&sql, " WHERE hook=?1 AND id>?2 ORDER BY id LIMIT 1");
    if (notice_prepare(s, sql.data, hook, after, &st, e) != ERR_OK)
        return e->code;
    const int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        return row_read(st, &notice_table, out, e);
    return rc == SQLITE_DONE ? ERR_OK : db_error(s->db, rc, e, "notice");
}

enum err_code store_notices_count(struct store *s, const char *hook, int64_t after, int64_t *count,
                                  struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (notice_prepare(s, "SELECT count(*) FROM notice WHERE hook=?1 AND id>?2", hook, after, &st, e) !=
        ERR_OK)
        return e->code;
    return notice_number(s, st, count, e);
}

enum err_code store_notices_delete(struct store *s, const char *hook, int64_t last, int64_t *deleted,
                                   struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (notice_prepare(s, "DELETE FROM notice WHERE hook=?1 AND id<=?2", hook, last, &st, e) != ERR_OK ||
        db_step_done(st, "notice", e) != ERR_OK)
        return e->code;
    *deleted = sqlite3_changes(s->db);
    return ERR_OK;
}

enum err_code store_notices_delete_each(struct store *s, const struct notice_mark *marks, size_t count,
                                        struct err *e)
{
    int64_t deleted;
    size_t done = 0;
    if (db_exec(s->db, "BEGIN IMMEDIATE", e) != ERR_OK)
        return e->code;
    while (done < count && store_notices_delete(s, marks[done].hook, marks[done].last, &deleted, e) == ERR_OK)
        done++;
    if (done == count && db_exec(s->db, "COMMIT", e) == ERR_OK)
        return ERR_OK;
    /* After some errors, such as a full disk, SQLite has already rolled back. */
    struct err ignored;
    if (!sqlite3_get_autocommit(s->db) && db_exec(s->db, "ROLLBACK", &ignored) != ERR_OK)
        log_error("rollback", "why=%s", LOG_Q(ignored.msg));
    return e->code;
}

enum err_code store_notices_excess(struct store *s, const char *hook, int64_t keep, int64_t since_ms,
                                   int64_t *last, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    /* Ids grow with time, except across a change of the clock: all notices before an old one go with it. */
    const char *sql =
        "SELECT max(coalesce((SELECT id FROM notice WHERE hook=?1 ORDER BY id DESC LIMIT 1 OFFSET ?2),0),"
        "coalesce((SELECT max(id) FROM notice WHERE hook=?1 AND time_ms<?3),0))";
    if (notice_prepare(s, sql, hook, keep, &st, e) != ERR_OK)
        return e->code;
    sqlite3_bind_int64(st, 3, since_ms);
    return notice_number(s, st, last, e);
}
