#include "store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"

enum err_code db_error(sqlite3 *db, int rc, struct err *e, const char *what)
{
    const char *text = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
    switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY: /* a file system that went read-only under us */
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: %s (%d)", what, text, rc);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(e, ERR_UNAVAILABLE, "%s: %s (%d)", what, text, rc);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(e, ERR_DATA_LOSS, "%s: %s (%d)", what, text, rc);
    default:
        return err_set(e, ERR_INTERNAL, "%s: %s (%d)", what, text, rc);
    }
}

void db_close(sqlite3 **db)
{
    sqlite3_close_v2(*db);
    *db = NULL;
}

enum err_code db_make_file(const char *path, struct err *e)
{
    /* O_EXCL: if the database is open in this process, closing another descriptor of it would drop SQLite's locks. */
    CLEANUP(close_fd) int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 && errno == EEXIST &&
        file_presence(path) == FILE_MISSING) /* a link to a file that is missing, so it is not open */
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: %s", path, strerror(errno));
    return ERR_OK;
}

enum err_code db_open(sqlite3 **out, const char *path, enum db_sync sync, struct err *e)
{
    CLEANUP(db_close) sqlite3 *db = NULL;
    if (db_make_file(path, e) != ERR_OK)
        return e->code;
    const int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return db_error(db, rc, e, path);
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, DB_BUSY_MS);
    /* sync first: a new file goes over to WAL in a synchronous way otherwise */
    if (db_exec(db, sync == DB_SYNC_FULL ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=OFF", e) !=
            ERR_OK ||
        db_exec(db, "PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF", e) !=
            ERR_OK)
        return err_wrap(e, "%s", path);
    *out = steal(db);
    return ERR_OK;
}

enum err_code db_open_reading(sqlite3 **out, const char *path, struct err *e)
{
    CLEANUP(db_close) sqlite3 *db = NULL;
    const int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return db_error(db, rc, e, path);
    sqlite3_extended_result_codes(db, 1);
    db_checkpoint_on_close(db, false);
    if (db_exec(db,
                "PRAGMA locking_mode=EXCLUSIVE; PRAGMA query_only=ON; PRAGMA temp_store=MEMORY;"
                "PRAGMA trusted_schema=OFF; SELECT count(*) FROM sqlite_schema",
                e) != ERR_OK)
        return err_wrap(e, "%s", path);
    *out = steal(db);
    return ERR_OK;
}

enum err_code db_checkpoint(sqlite3 *db, struct err *e)
{
    const int rc = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return rc == SQLITE_OK ? ERR_OK : db_error(db, rc, e, "checkpoint");
}

void db_checkpoint_on_close(sqlite3 *db, bool on)
{
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, NULL);
}

char *db_stamped(const char *path, const char *why)
{
    char stamp[32];
    struct tm tm;
    const time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
    return xasprintf("%s.%s-%s", path, why, stamp);
}

enum err_code db_exec(sqlite3 *db, const char *sql, struct err *e)
{
    const int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ERR_OK : db_error(db, rc, e, "database");
}

enum err_code db_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, struct err *e)
{
    const int rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    return rc == SQLITE_OK ? ERR_OK : db_error(db, rc, e, sql);
}

void db_finalize(sqlite3_stmt **st)
{
    sqlite3_finalize(*st);
    *st = NULL;
}

enum err_code db_step_done(sqlite3_stmt *st, const char *what, struct err *e)
{
    enum err_code code = ERR_OK;
    const int rc = sqlite3_step(st);
    if (rc != SQLITE_DONE)
        code = db_error(sqlite3_db_handle(st), rc, e, what);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st); /* they borrow from the caller */
    return code;
}

enum err_code db_int(sqlite3 *db, const char *sql, int64_t fallback, int64_t *out, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (db_prepare(db, sql, &st, e) != ERR_OK)
        return e->code;
    const int rc = sqlite3_step(st);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return db_error(db, rc, e, sql);
    *out = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : fallback;
    return ERR_OK;
}
