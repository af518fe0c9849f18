#include "store/content.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/db.h"
#include "store/schema.h"

#define META(key) "SELECT CAST(value AS INTEGER) FROM meta WHERE key='" key "'"

static enum err_code content_cluster(sqlite3 *db, char out[ID_TEXT], struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;

    if (db_prepare(db, "SELECT value FROM meta WHERE key='cluster_id'", &st, e) != ERR_OK)
        return e->code;
    const int rc = sqlite3_step(st);
    if (rc != SQLITE_ROW)
        return rc == SQLITE_DONE ? err_set(e, ERR_DATA_LOSS, "the database has no cluster id")
                                 : db_error(db, rc, e, "meta");
    snprintf(out, ID_TEXT, "%s", (const char *)sqlite3_column_text(st, 0));
    return ERR_OK;
}

enum err_code content_read(sqlite3 *db, struct content *out, struct err *e)
{
    *out = (struct content){0};
    if (db_int(db, "PRAGMA user_version", 0, &out->schema, e) != ERR_OK)
        return e->code;
    if (out->schema == 0 || out->schema > schema_latest)
        return ERR_OK;
    if (content_cluster(db, out->cluster_id, e) != ERR_OK ||
        db_int(db, META("epoch"), 0, &out->epoch, e) != ERR_OK ||
        db_int(db, META("sequence"), 0, &out->sequence, e) != ERR_OK ||
        db_int(db, "SELECT seq FROM sqlite_sequence WHERE name='job'", 0, &out->last_job, e) != ERR_OK ||
        db_int(db, "SELECT count(*) FROM job", 0, &out->jobs, e) != ERR_OK)
        return e->code;
    return ERR_OK;
}

struct check_end {
    int64_t deadline;
    const atomic_bool *stop;
};

static int check_has_ended(void *user)
{
    const struct check_end *end = user;

    return (end->stop && *end->stop) || clock_mono_ns() > end->deadline;
}

enum err_code content_check(sqlite3 *db, int64_t limit_ms, const atomic_bool *stop, struct err *e)
{
    struct check_end end = {clock_mono_ns() + limit_ms * 1000000, stop};
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;

    if (db_prepare(db, "PRAGMA quick_check(1)", &st, e) != ERR_OK)
        return e->code;
    sqlite3_progress_handler(db, 10000, check_has_ended, &end);
    const int rc = sqlite3_step(st);
    sqlite3_progress_handler(db, 0, NULL, NULL);
    if (stop && *stop)
        return err_set(e, ERR_CANCELLED, "the database check was cancelled");
    if ((rc & 0xff) == SQLITE_INTERRUPT) {
        log_warn("database_not_checked_whole", "after_ms=%lld", (long long)limit_ms);
        return ERR_OK;
    }
    if (rc != SQLITE_ROW)
        return db_error(db, rc, e, "quick_check");
    const char *found = (const char *)sqlite3_column_text(st, 0);
    if (found && sqlite3_stricmp(found, "ok") == 0)
        return ERR_OK;
    return err_set(e, ERR_DATA_LOSS, "the database is damaged: %.200s", found ? found : "unknown");
}
