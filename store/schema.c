#include "store/schema.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/db.h"

/* The newest schema, for a database that is made now. A test compares it with what the migrations make of older
 * ones.
 *
 * The state columns hold the names in states.c; row_read refuses any other. References are checked at the
 * commit, so that the order inside one list of changes is free. Events of the cluster itself have job 0. */
static const char schema_newest[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE job("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, request_id TEXT NOT NULL UNIQUE, body_digest BLOB NOT NULL,"
    " name TEXT NOT NULL, user TEXT, job_file TEXT NOT NULL, env BLOB, state TEXT NOT NULL, reason TEXT,"
    " generation INTEGER NOT NULL, restarts_used INTEGER NOT NULL, continues INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    " exit_code INTEGER NOT NULL, next_spawn INTEGER NOT NULL, goal TEXT NOT NULL, kill INTEGER NOT NULL,"
    " nodes_min INTEGER NOT NULL DEFAULT 0, nodes_max INTEGER NOT NULL DEFAULT 0,"
    " fault_ms INTEGER NOT NULL DEFAULT 0, fault_step INTEGER NOT NULL DEFAULT 0, last_restart TEXT,"
    " last_restart_ms INTEGER NOT NULL DEFAULT 0, stop_signal INTEGER NOT NULL DEFAULT 0, progress TEXT,"
    " scratch_generation INTEGER NOT NULL DEFAULT 0,"
    " revision INTEGER NOT NULL DEFAULT 0, revision_used INTEGER NOT NULL DEFAULT 0,"
    " CHECK(id > 0), CHECK(length(body_digest) = 32)) STRICT;"
    "CREATE TABLE node("
    " name TEXT PRIMARY KEY, instance TEXT, address TEXT, version TEXT, log_dir TEXT, state TEXT NOT NULL, "
    "drain INTEGER NOT NULL, note TEXT,"
    " cpu_slots INTEGER NOT NULL, cores INTEGER NOT NULL, port_first INTEGER NOT NULL, port_last INTEGER NOT "
    "NULL,"
    " memory_bytes INTEGER NOT NULL, gpus TEXT, seen_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE generation("
    " job INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,"
    " number INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, world_size INTEGER NOT NULL,"
    " node_count INTEGER NOT NULL, master_port INTEGER NOT NULL, master_addr TEXT, charged INTEGER NOT NULL,"
    " failed_spawn INTEGER NOT NULL,"
    " bootstrap BLOB, key BLOB NOT NULL, has_key INTEGER NOT NULL, source_rank INTEGER NOT NULL,"
    " source_generation INTEGER NOT NULL, source_step INTEGER NOT NULL, source_digest TEXT, source_path TEXT,"
    " created_ms INTEGER NOT NULL, ready_ms INTEGER NOT NULL, closed_ms INTEGER NOT NULL,"
    " error INTEGER NOT NULL DEFAULT 0, has_step INTEGER NOT NULL DEFAULT 0,"
    " last_step INTEGER NOT NULL DEFAULT 0, stop_step INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY(job, number), CHECK(length(key) = 32)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE rank("
    " job INTEGER NOT NULL, generation INTEGER NOT NULL, rank INTEGER NOT NULL, node_rank INTEGER NOT NULL,"
    " local_rank INTEGER NOT NULL, node TEXT NOT NULL, spawn INTEGER NOT NULL, state TEXT NOT NULL, address "
    "BLOB, version TEXT, computes TEXT,"
    " PRIMARY KEY(job, generation, rank),"
    " FOREIGN KEY(job, generation) REFERENCES generation(job, number) ON DELETE CASCADE DEFERRABLE INITIALLY "
    "DEFERRED"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE spawn("
    " job INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,"
    " spawn INTEGER NOT NULL, first_generation INTEGER NOT NULL, node TEXT NOT NULL,"
    " first_local_rank INTEGER NOT NULL, cpu_slot INTEGER NOT NULL, gpu_uuids BLOB, token BLOB NOT NULL,"
    " token_hash BLOB NOT NULL, revoked INTEGER NOT NULL, dead INTEGER NOT NULL, exit_known INTEGER NOT NULL,"
    " code INTEGER NOT NULL, signal INTEGER NOT NULL, out_of_memory INTEGER NOT NULL, lost INTEGER NOT NULL,"
    " message TEXT, stderr_tail TEXT, pid INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER "
    "NOT NULL, stopped INTEGER NOT NULL DEFAULT 0, last_commit INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY(job, spawn), CHECK(length(token) = 32), CHECK(length(token_hash) = 32)) STRICT, WITHOUT "
    "ROWID;"
    "CREATE INDEX spawn_live ON spawn(job) WHERE dead = 0;"
    "CREATE TABLE snapshot("
    " job INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,"
    " generation INTEGER NOT NULL, step INTEGER NOT NULL, bytes INTEGER NOT NULL, committed_ms INTEGER NOT "
    "NULL,"
    " digest TEXT NOT NULL, path TEXT, nodes BLOB, PRIMARY KEY(job, generation, step)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE event("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, job INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, what TEXT NOT NULL, text TEXT) STRICT;"
    "CREATE INDEX event_job ON event(job, id);"
    "CREATE TABLE user("
    " name TEXT PRIMARY KEY, role TEXT NOT NULL, token_hash BLOB NOT NULL UNIQUE, created_ms INTEGER NOT "
    "NULL,"
    " token_ms INTEGER NOT NULL, CHECK(length(token_hash) = 32)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE audit("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, who TEXT NOT NULL, origin TEXT NOT "
    "NULL,"
    " what TEXT NOT NULL, job INTEGER NOT NULL, text TEXT NOT NULL) STRICT;"
    "CREATE INDEX audit_what ON audit(what, id);"
    "INSERT INTO meta VALUES('sequence','0');"
    "CREATE TABLE removed_number(job INTEGER PRIMARY KEY) STRICT;"
    "CREATE TABLE notice("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, job INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, hook TEXT NOT NULL, what TEXT NOT NULL, text TEXT NOT NULL,"
    " name TEXT NOT NULL, user TEXT NOT NULL, node TEXT NOT NULL, url TEXT NOT NULL, shape INTEGER NOT NULL)"
    " STRICT;"
    "CREATE INDEX notice_hook ON notice(hook, id);";

/* The user's resize; the cost of the last fault, which is known only when the job runs again; and how a
 * cancel stops. */
static const char schema_2[] = "ALTER TABLE job ADD COLUMN nodes_min INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE job ADD COLUMN nodes_max INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE job ADD COLUMN fault_ms INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE job ADD COLUMN fault_step INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE job ADD COLUMN last_restart TEXT;"
                               "ALTER TABLE job ADD COLUMN last_restart_ms INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE job ADD COLUMN stop_signal INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE spawn ADD COLUMN stopped INTEGER NOT NULL DEFAULT 0;";

/* Users and their roles; the audit log; the number of commits, which is compared with ddp.mark; the
 * progress of a job; the first generation whose snapshots count. */
static const char schema_3[] =
    "CREATE TABLE user("
    " name TEXT PRIMARY KEY, role TEXT NOT NULL, token_hash BLOB NOT NULL UNIQUE, created_ms INTEGER NOT "
    "NULL,"
    " token_ms INTEGER NOT NULL, CHECK(length(token_hash) = 32)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE audit("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, who TEXT NOT NULL, origin TEXT NOT "
    "NULL,"
    " what TEXT NOT NULL, job INTEGER NOT NULL, text TEXT NOT NULL) STRICT;"
    "CREATE INDEX audit_what ON audit(what, id);"
    "INSERT INTO meta VALUES('sequence','0');"
    "ALTER TABLE job ADD COLUMN progress TEXT;"
    "ALTER TABLE job ADD COLUMN scratch_generation INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE removed_number(job INTEGER PRIMARY KEY) STRICT;";

/* A spawn may outlive its generation: which generation it is a member of, and as which rank, is in the rank
 * table only. The spawn keeps the place of its logs. */
static const char schema_4[] = "ALTER TABLE spawn RENAME COLUMN generation TO first_generation;"
                               "ALTER TABLE spawn RENAME COLUMN local_rank TO first_local_rank;"
                               "ALTER TABLE spawn DROP COLUMN rank;";

/* The job file of a train job may change while the job runs. */
static const char schema_5[] = "ALTER TABLE job ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE job ADD COLUMN revision_used INTEGER NOT NULL DEFAULT 0;";

/* What tells a generation that failed again in the same way from one that a fault ended. */
static const char schema_6[] = "ALTER TABLE generation ADD COLUMN error INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE generation ADD COLUMN has_step INTEGER NOT NULL DEFAULT 0;"
                               "ALTER TABLE generation ADD COLUMN last_step INTEGER NOT NULL DEFAULT 0;";

/* The step at which the ranks of a command agree to stop. */
static const char schema_7[] = "ALTER TABLE generation ADD COLUMN stop_step INTEGER NOT NULL DEFAULT 0;";

/* The last commit of a command's process, which it may repeat because the answer was lost. */
static const char schema_8[] = "ALTER TABLE spawn ADD COLUMN last_commit INTEGER NOT NULL DEFAULT 0;";

/* Events that hooks have not got yet. */
static const char schema_9[] =
    "CREATE TABLE notice("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, job INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, hook TEXT NOT NULL, what TEXT NOT NULL, text TEXT NOT NULL,"
    " name TEXT NOT NULL, user TEXT NOT NULL, node TEXT NOT NULL, url TEXT NOT NULL, shape INTEGER NOT NULL)"
    " STRICT;"
    "CREATE INDEX notice_hook ON notice(hook, id);";

/* What a rank said of its program and its device when it joined. */
static const char schema_10[] = "ALTER TABLE rank ADD COLUMN version TEXT;"
                                "ALTER TABLE rank ADD COLUMN computes TEXT;";

const char *const schema_migrations[] = {schema_newest, schema_2, schema_3, schema_4, schema_5,
                                         schema_6,      schema_7, schema_8, schema_9, schema_10};
const int schema_latest = (int)ARRAY_LEN(schema_migrations);

static enum err_code schema_backup(sqlite3 *db, const char *prefix, int64_t version, struct err *e)
{
    CLEANUP(free_text) char *to = xasprintf("%s.v%lld.bak", prefix, (long long)version);
    CLEANUP(free_text) char *tmp = xasprintf("%s.tmp", to);
    unlink(tmp);
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (db_prepare(db, "VACUUM INTO ?1", &st, e) != ERR_OK)
        return e->code;
    sqlite3_bind_text(st, 1, tmp, -1, SQLITE_STATIC);
    /* Like the database, the copy holds secrets. SQLite accepts a file that is empty. */
    if (db_make_file(tmp, e) != ERR_OK || db_step_done(st, tmp, e) != ERR_OK)
        return err_wrap(e, "copy the database before its migration");
    if (rename(tmp, to) != 0)
        return err_sys(e, errno, "%s", to);
    log_info("schema_backup", "from=%lld copy=%s", (long long)version, LOG_Q(to));
    return ERR_OK;
}

static enum err_code schema_apply(sqlite3 *db, const char *const *list, int from, int count, struct err *e)
{
    /* The first entry makes the newest schema at once: SQLite parses the whole schema again for each column that
     * a migration renames, which would be 5 % of the time of a short `ddpctl run`. */
    const int to = from == 0 ? 1 : count;
    for (int i = from; i < to; i++)
        if (db_exec(db, list[i], e) != ERR_OK)
            return err_wrap(e, "migration %d", i + 1);
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA user_version=%d", count);
    return db_exec(db, sql, e);
}

enum err_code schema_migrate(sqlite3 *db, const char *const *list, int count, const char *backup_prefix,
                             struct err *e)
{
    int64_t version;
    if (db_int(db, "PRAGMA user_version", 0, &version, e) != ERR_OK)
        return e->code;
    if (version > count)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s has schema %lld, but this program supports up to %d: run the newer program, or put the copy"
            " %s.v%d.bak in its place",
            backup_prefix, (long long)version, count, backup_prefix, count);
    if (version == count)
        return ERR_OK;
    /* A new database has nothing to keep; a copy of an older one lets the older program run again. */
    if (version > 0 && backup_prefix && schema_backup(db, backup_prefix, version, e) != ERR_OK)
        return e->code;
    if (db_exec(db, "BEGIN IMMEDIATE", e) != ERR_OK)
        return e->code;
    if (schema_apply(db, list, (int)version, count, e) == ERR_OK && db_exec(db, "COMMIT", e) == ERR_OK)
        return ERR_OK;
    struct err ignored;
    if (db_exec(db, "ROLLBACK", &ignored) != ERR_OK)
        log_debug("rollback", "why=%s", LOG_Q(ignored.msg));
    return e->code;
}
