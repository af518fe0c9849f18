#ifndef DDP_TESTS_UNIT_STORE_FAILING_DISK_H
#define DDP_TESTS_UNIT_STORE_FAILING_DISK_H

#include <stdbool.h>

#include <sqlite3.h>

/* A disk that fails under SQLite. The program includes this once. It calls failing_disk_install before it opens a database, and
 * failing_disk_remove when all are closed. One thread. */
static struct failing_disk {
    int log_write, log_sync; /* SQLite's code for these calls on a write-ahead log; SQLITE_OK: they work */
    int checkpoint;          /* for a write to a database after one to a log */
    bool log_written;
} failing_disk;

static sqlite3_vfs *real_vfs;
static const sqlite3_io_methods *real_methods;

static int write_log(sqlite3_file *f, const void *data, int size, sqlite3_int64 at)
{
    if (failing_disk.log_write != SQLITE_OK)
        return failing_disk.log_write;
    failing_disk.log_written = true;
    return real_methods->xWrite(f, data, size, at);
}

static int sync_log(sqlite3_file *f, int flags)
{
    return failing_disk.log_sync != SQLITE_OK ? failing_disk.log_sync : real_methods->xSync(f, flags);
}

static int write_database(sqlite3_file *f, const void *data, int size, sqlite3_int64 at)
{
    if (failing_disk.checkpoint != SQLITE_OK && failing_disk.log_written)
        return failing_disk.checkpoint;
    return real_methods->xWrite(f, data, size, at);
}

static int open_on_disk(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *flags_out)
{
    static sqlite3_io_methods log_methods, database_methods;
    const int rc = real_vfs->xOpen(real_vfs, name, f, flags, flags_out);

    (void)vfs;
    if (rc != SQLITE_OK || !(flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_DB)))
        return rc;
    /* The methods of both kinds differ, but not the functions that are replaced. */
    real_methods = f->pMethods;
    if (flags & SQLITE_OPEN_WAL) {
        log_methods = *real_methods;
        log_methods.xWrite = write_log;
        log_methods.xSync = sync_log;
        f->pMethods = &log_methods;
    } else {
        database_methods = *real_methods;
        database_methods.xWrite = write_database;
        f->pMethods = &database_methods;
    }
    return rc;
}

static void failing_disk_install(void)
{
    static sqlite3_vfs vfs;

    real_vfs = sqlite3_vfs_find(NULL);
    vfs = *real_vfs;
    vfs.pNext = NULL;
    vfs.zName = "failing_disk";
    vfs.xOpen = open_on_disk;
    assert_int_equal(sqlite3_vfs_register(&vfs, 1), SQLITE_OK);
}

static void failing_disk_remove(void)
{
    failing_disk = (struct failing_disk){0};
    assert_int_equal(sqlite3_vfs_register(real_vfs, 1), SQLITE_OK);
}

#endif
