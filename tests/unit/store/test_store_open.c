/* Opening a store: one process at a time, schemas, migrations, file systems. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/db.h"
#include "store/schema.h"
#include "store_test.h"

static int open_setup(void **state)
{
    *state = make_dir();
    return 0;
}

static int open_teardown(void **state)
{
    remove_dir(*state);
    return 0;
}

static void each_open_begins_an_epoch(void **state)
{
    struct store *s = must_open(*state);
    CLEANUP(free_text) char *id = xstrdup(store_cluster_id(s));
    assert_int_equal(strlen(id), ID_TEXT - 1);
    assert_int_equal(store_epoch(s), 1);
    store_close(s);
    s = must_open(*state);
    assert_string_equal(store_cluster_id(s), id);
    assert_int_equal(store_epoch(s), 2);
    assert_int_equal(store_schema(s), schema_latest);
    assert_true(store_room(s) > 0);
    store_close(s);
}

static int synced;

/* SQLite calls this function instead of that of the C library. */
int fdatasync(int fd)
{
    synced++;
    return fsync(fd);
}

static void a_temporary_cluster_does_not_sync(void **state)
{
    struct store *s;
    struct err e;
    synced = 0;
    assert_int_equal(store_open_temporary(&s, *state, &e), ERR_OK);
    CLEANUP(free_text) char *id = xstrdup(store_cluster_id(s));
    store_close(s);
    assert_int_equal(synced, 0);
    CLEANUP(free_text) char *mark = xasprintf("%s/ddp.mark", (char *)*state);
    assert_false(file_exists(mark)); /* without syncs a mark would prove nothing */
    s = must_open(*state);
    assert_string_equal(store_cluster_id(s), id);
    assert_true(synced > 0);
    store_close(s);
}

static void the_database_is_private(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *file = xasprintf("%s/ddp.db", dir);
    store_close(must_open(dir));
    struct stat st;
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0077, 0);
}

static void a_second_open_names_the_owning_process(void **state)
{
    int ready[2], done[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        struct store *s = must_open(*state);
        char byte = 'r';
        if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1)
            _exit(1);
        store_close(s);
        _exit(0);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct err e = {0};
    struct store *s = NULL;
    assert_int_equal(store_open(&s, *state, &e), ERR_FAILED_PRECONDITION);
    CLEANUP(free_text) char *who = xasprintf("process %d", (int)pid);
    assert_non_null(strstr(e.msg, who));
    assert_non_null(strstr(e.msg, *state));
    assert_int_equal(write(done[1], &byte, 1), 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    store_close(must_open(*state)); /* its owner has ended */
}

static void exec_at(const char *path, const char *sql)
{
    struct err e = {0};
    CLEANUP(db_close) sqlite3 *db = NULL;
    assert_int_equal(db_open(&db, path, DB_SYNC_FULL, &e), ERR_OK);
    if (db_exec(db, sql, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static void a_newer_schema_is_refused(void **state)
{
    store_close(must_open(*state));
    CLEANUP(free_text) char *path = xasprintf("%s/ddp.db", (char *)*state);
    exec_at(path, "PRAGMA user_version=99");
    struct err e = {0};
    struct store *s = NULL;
    assert_int_equal(store_open(&s, *state, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "schema 99"));
}

static void a_file_that_is_not_a_database_is_refused(void **state)
{
    CLEANUP(free_text) char *path = xasprintf("%s/ddp.db", (char *)*state);
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, junk, sizeof junk, 0600, &e), ERR_OK);
    struct store *s = NULL;
    assert_int_equal(store_open(&s, *state, &e), ERR_DATA_LOSS);
    assert_non_null(strstr(e.msg, "ddp.db"));
}

static const char *const two[] = {"CREATE TABLE a(x INTEGER) STRICT; INSERT INTO a VALUES(41);",
                                  "ALTER TABLE a ADD COLUMN y INTEGER; UPDATE a SET y=x+1;"};

static void check_int(sqlite3 *db, const char *sql, int64_t want)
{
    struct err e = {0};
    int64_t got;
    if (db_int(db, sql, -1, &got, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(got, want);
}

static void an_old_database_is_copied_then_migrated(void **state)
{
    CLEANUP(free_text) char *path = xasprintf("%s/t.db", (char *)*state);
    CLEANUP(free_text) char *copy = xasprintf("%s.v1.bak", path);
    struct err e = {0};
    CLEANUP(db_close) sqlite3 *db = NULL;
    assert_int_equal(db_open(&db, path, DB_SYNC_FULL, &e), ERR_OK);
    assert_int_equal(schema_migrate(db, two, 1, path, &e), ERR_OK);
    assert_false(file_exists(copy));
    const mode_t old_mask = umask(0022);
    assert_int_equal(schema_migrate(db, two, 2, path, &e), ERR_OK);
    umask(old_mask);
    struct stat st;
    assert_int_equal(stat(copy, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    check_int(db, "SELECT y FROM a", 42);
    check_int(db, "PRAGMA user_version", 2);
    CLEANUP(db_close) sqlite3 *old = NULL;
    assert_int_equal(db_open(&old, copy, DB_SYNC_FULL, &e), ERR_OK);
    check_int(old, "PRAGMA user_version", 1);
    check_int(old, "SELECT x FROM a", 41);
}

static void a_failed_migration_changes_nothing(void **state)
{
    static const char *const broken[] = {
        "CREATE TABLE a(x INTEGER) STRICT;",
        "INSERT INTO a VALUES(1); CREATE TABLE b(x INTEGER) STRICT; GARBAGE;"};
    CLEANUP(free_text) char *path = xasprintf("%s/t.db", (char *)*state);
    struct err e = {0};
    CLEANUP(db_close) sqlite3 *db = NULL;
    assert_int_equal(db_open(&db, path, DB_SYNC_FULL, &e), ERR_OK);
    assert_int_equal(schema_migrate(db, broken, 1, path, &e), ERR_OK);
    assert_int_equal(schema_migrate(db, broken, 2, path, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.msg, "migration 2"));
    check_int(db, "PRAGMA user_version", 1);
    check_int(db, "SELECT count(*) FROM a", 0);
    check_int(db, "SELECT count(*) FROM sqlite_schema WHERE name='b'", 0);
}

/* Schema 1, as the oldest builds made it. */
static const char schema_1[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE job("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, request_id TEXT NOT NULL UNIQUE, body_digest BLOB NOT NULL,"
    " name TEXT NOT NULL, user TEXT, job_file TEXT NOT NULL, env BLOB, state TEXT NOT NULL, reason TEXT,"
    " generation INTEGER NOT NULL, restarts_used INTEGER NOT NULL, continues INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    " exit_code INTEGER NOT NULL, next_spawn INTEGER NOT NULL, goal TEXT NOT NULL, kill INTEGER NOT NULL,"
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
    " PRIMARY KEY(job, number), CHECK(length(key) = 32)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE rank("
    " job INTEGER NOT NULL, generation INTEGER NOT NULL, rank INTEGER NOT NULL, node_rank INTEGER NOT NULL,"
    " local_rank INTEGER NOT NULL, node TEXT NOT NULL, spawn INTEGER NOT NULL, state TEXT NOT NULL, address "
    "BLOB,"
    " PRIMARY KEY(job, generation, rank),"
    " FOREIGN KEY(job, generation) REFERENCES generation(job, number) ON DELETE CASCADE DEFERRABLE INITIALLY "
    "DEFERRED"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE spawn("
    " job INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,"
    " spawn INTEGER NOT NULL, generation INTEGER NOT NULL, node TEXT NOT NULL, rank INTEGER NOT NULL,"
    " local_rank INTEGER NOT NULL, cpu_slot INTEGER NOT NULL, gpu_uuids BLOB, token BLOB NOT NULL,"
    " token_hash BLOB NOT NULL, revoked INTEGER NOT NULL, dead INTEGER NOT NULL, exit_known INTEGER NOT NULL,"
    " code INTEGER NOT NULL, signal INTEGER NOT NULL, out_of_memory INTEGER NOT NULL, lost INTEGER NOT NULL,"
    " message TEXT, stderr_tail TEXT, pid INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER "
    "NOT NULL,"
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
    "CREATE INDEX event_job ON event(job, id);";

/* Makes a database of an older schema. */
static void make_schema(sqlite3 *db, int number, const char *path)
{
    struct err e = {0};

    assert_int_equal(db_exec(db, schema_1, &e), ERR_OK);
    assert_int_equal(db_exec(db, "PRAGMA user_version=1", &e), ERR_OK);
    if (schema_migrate(db, schema_migrations, number, path, &e))
        fail_msg("%s", e.msg);
}

/* Lists all tables, columns and indexes, one on each line. */
static void describe_schema(sqlite3 *db, struct buf *out)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    struct err e = {0};

    assert_int_equal(
        db_prepare(
            db,
            "SELECT m.name, m.type, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk FROM sqlite_schema m "
            "LEFT JOIN pragma_table_info(m.name) c WHERE m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.name",
            &st, &e),
        ERR_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        for (int i = 0; i < 7; i++) {
            const unsigned char *text = sqlite3_column_text(st, i);
            buf_printf(out, "%s ", text ? (const char *)text : "-");
        }
        buf_putc(out, '\n');
    }
}

/* A migrated database has the same tables, columns and indexes as a new one. */
static void every_schema_migrates_to_the_newest(void **state)
{
    CLEANUP(buf_release) struct buf want = {0};
    for (int from = 0; from < schema_latest; from++) {
        CLEANUP(free_text) char *path = xasprintf("%s/from%d.db", (char *)*state, from);
        CLEANUP(buf_release) struct buf got = {0};
        struct err e = {0};
        CLEANUP(db_close) sqlite3 *db = NULL;
        assert_int_equal(db_open(&db, path, DB_SYNC_FULL, &e), ERR_OK);
        if (from > 0)
            make_schema(db, from, path);
        assert_int_equal(schema_migrate(db, schema_migrations, schema_latest, path, &e), ERR_OK);
        check_int(db, "PRAGMA user_version", schema_latest);
        check_int(db, "SELECT count(*) FROM meta WHERE key='sequence'", 1);
        describe_schema(db, from ? &got : &want);
        assert_true(want.len > 1000);
        if (from)
            assert_string_equal(got.data, want.data);
    }
}

/* Before schema 4 a spawn had exactly one generation and local rank. Schema 4 keeps them as the place of its
 * logs; which ranks a spawn has held is in the rank records. */
static void spawns_of_schema_3_keep_their_ranks(void **state)
{
    CLEANUP(free_text) char *path = xasprintf("%s/ddp.db", (char *)*state);
    struct err e = {0};
    sqlite3 *db = NULL;
    store_close(must_open(*state)); /* makes the meta rows that a store needs */
    CLEANUP(free_text) char *newest = xasprintf("%s.newest", path);
    assert_int_equal(rename(path, newest), 0);
    CLEANUP(free_text) char *attach = xasprintf("ATTACH '%s' AS newest", newest);
    assert_int_equal(db_open(&db, path, DB_SYNC_FULL, &e), ERR_OK);
    make_schema(db, 3, NULL);
    assert_int_equal(db_exec(db, attach, &e), ERR_OK);
    assert_int_equal(
        db_exec(db,
                "INSERT OR REPLACE INTO meta SELECT * FROM newest.meta;"
                "INSERT INTO job(id,request_id,body_digest,name,job_file,state,generation,"
                "restarts_used,continues,created_ms,started_ms,ended_ms,exit_code,next_spawn,goal,"
                "kill) VALUES(1,'r',zeroblob(32),'n','f','running',2,0,0,1,1,0,0,9,'succeeded',0);"
                "INSERT INTO generation(job,number,state,world_size,node_count,master_port,charged,"
                "failed_spawn,key,has_key,source_rank,source_generation,source_step,created_ms,"
                "ready_ms,closed_ms) VALUES(1,2,'running',8,2,0,0,0,zeroblob(32),0,-1,0,0,1,0,0);"
                "INSERT INTO rank(job,generation,rank,node_rank,local_rank,node,spawn,state)"
                " VALUES(1,2,7,1,3,'box2',8,'joined');"
                "INSERT INTO spawn(job,spawn,generation,node,rank,local_rank,cpu_slot,token,"
                "token_hash,revoked,dead,exit_known,code,signal,out_of_memory,lost,pid,started_ms,"
                "ended_ms) VALUES(1,8,2,'box2',7,3,5,zeroblob(32),zeroblob(32),0,0,0,0,0,0,0,77,1,"
                "0);",
                &e),
        ERR_OK);
    db_close(&db);
    struct store *s = must_open(*state);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.spawn_count, 1);
    assert_int_equal(got.spawns[0].first_generation, 2);
    assert_int_equal(got.spawns[0].first_local_rank, 3);
    assert_int_equal(got.spawns[0].cpu_slot, 5);
    assert_int_equal(got.spawns[0].pid, 77);
    assert_int_equal(got.ranks[0].spawn, 8);
    assert_int_equal(got.ranks[0].rank, 7);
    store_close(s);
    CLEANUP(free_text) char *copy = xasprintf("%s.v3.bak", path);
    assert_true(file_exists(copy));
}

static void network_file_systems_are_named(void **state)
{
    (void)state;
    assert_string_equal(store_refused_fs(0x6969), "NFS");
    assert_string_equal(store_refused_fs((long)0xff534d42), "CIFS");
    assert_string_equal(store_refused_fs((long)(int)0xfe534d42), "SMB2"); /* where f_type is a 32-bit int */
    assert_null(store_refused_fs(0xef53));                                /* ext4 */
    assert_null(store_refused_fs(0x01021994));                            /* tmpfs */
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_setup, open_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_open_begins_an_epoch),
        TEST(a_temporary_cluster_does_not_sync),
        TEST(the_database_is_private),
        TEST(a_second_open_names_the_owning_process),
        TEST(a_newer_schema_is_refused),
        TEST(a_file_that_is_not_a_database_is_refused),
        TEST(an_old_database_is_copied_then_migrated),
        TEST(a_failed_migration_changes_nothing),
        TEST(every_schema_migrates_to_the_newest),
        TEST(spawns_of_schema_3_keep_their_ranks),
        cmocka_unit_test(network_file_systems_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
