#ifndef DDP_STORE_SCHEMA_H
#define DDP_STORE_SCHEMA_H

#include <sqlite3.h>

#include "base/err.h"

/* PRAGMA user_version holds the number of the schema. Entry 0 makes the newest schema in a new database; entry N
 * (from 1) turns schema N into N+1. For a new schema edit entry 0 and append a migration; never edit a migration
 * that a release has shipped. Private to store/. */
extern const char *const schema_migrations[];
extern const int schema_latest;

/* Brings the database to schema `count`: by list[0] if it is new, else by those of list[1..count) that it lacks, all in one BEGIN IMMEDIATE. A database that holds an older
 * schema is first copied to backup_prefix.v<N>.bak, unless that is NULL. FAILED_PRECONDITION when it is newer
 * than count. */
MUST_CHECK enum err_code schema_migrate(sqlite3 *db, const char *const *list, int count,
                                        const char *backup_prefix, struct err *e);

#endif
