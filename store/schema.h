#ifndef DDP_STORE_SCHEMA_H
#define DDP_STORE_SCHEMA_H

#include <sqlite3.h>

#include "base/err.h"

/* Numbered migrations: number N (from 1) turns schema N-1 into N; PRAGMA user_version holds N. Never edit one
 * that a release has shipped, append another. Private to store/. */
extern const char *const schema_migrations[];
extern const int schema_latest;

/* Applies what is missing of list[0..count), all in one BEGIN IMMEDIATE. A database that holds an older
 * schema is first copied to backup_prefix.v<N>.bak, unless that is NULL. FAILED_PRECONDITION when it is newer
 * than count. */
MUST_CHECK enum err_code schema_migrate(sqlite3 *db, const char *const *list, int count,
                                        const char *backup_prefix, struct err *e);

#endif
