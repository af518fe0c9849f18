#ifndef DDP_STORE_DB_H
#define DDP_STORE_DB_H

#include <stdbool.h>
#include <stdint.h>

#include <sqlite3.h>

#include "base/err.h"

/* One SQLite connection, set up as the project wants it, and SQLite's errors in our codes. Private to store/.
 */

#define DB_BUSY_MS 2000 /* the wait for another connection's lock */

enum db_sync { DB_SYNC_OFF, DB_SYNC_FULL };

/* Makes an empty file that only its owner can read, unless the file exists. SQLite itself makes files by the umask, which
 * all threads share. It gives the files beside a database the mode of the database. */
MUST_CHECK enum err_code db_make_file(const char *path, struct err *e);
/* Makes the file if it is missing. WAL, foreign keys, extended result codes, busy timeout DB_BUSY_MS; used by one thread at a time. */
MUST_CHECK enum err_code db_open(sqlite3 **out, const char *path, enum db_sync sync, struct err *e);
/* Opens for reading while the disk is full: nothing is written, not even the WAL's shared memory, so no other
 * connection can use the file meanwhile. The file must exist. */
MUST_CHECK enum err_code db_open_reading(sqlite3 **out, const char *path, struct err *e);
/* Moves the whole write-ahead log into the file and empties it. UNAVAILABLE: another connection still needs the log. Closing the
 * last connection does the same, but reports no error. */
MUST_CHECK enum err_code db_checkpoint(sqlite3 *db, struct err *e);
void db_close(sqlite3 **db); /* for CLEANUP too */
/* Whether closing the last connection moves the write-ahead log into the file. False: leaves the files as
 * they are. */
void db_checkpoint_on_close(sqlite3 *db, bool on);

/* path.why-20261122T041200Z */
char *db_stamped(const char *path, const char *why);

/* FULL and IOERR: RESOURCE_EXHAUSTED; BUSY and LOCKED: UNAVAILABLE; CORRUPT and NOTADB: DATA_LOSS; else
 * INTERNAL. The message is "what: SQLite's own text". */
enum err_code db_error(sqlite3 *db, int rc, struct err *e, const char *what);

MUST_CHECK enum err_code db_exec(sqlite3 *db, const char *sql, struct err *e);
MUST_CHECK enum err_code db_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, struct err *e);
void db_finalize(sqlite3_stmt **st); /* for CLEANUP */
/* Steps a statement that gives no row, and resets it, whatever the result. */
MUST_CHECK enum err_code db_step_done(sqlite3_stmt *st, const char *what, struct err *e);
/* The first column of the first row; fallback when there is none. */
MUST_CHECK enum err_code db_int(sqlite3 *db, const char *sql, int64_t fallback, int64_t *out, struct err *e);

#endif
