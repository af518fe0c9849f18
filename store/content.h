#ifndef DDP_STORE_CONTENT_H
#define DDP_STORE_CONTENT_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/crypto/id.h"
#include "base/err.h"

/* The identity and size of a coordinator's database, of any schema. Private to store/. */
struct content {
    int64_t schema; /* 0: an empty file; that, or one that this program does not know: nothing else is filled
                       in */
    char cluster_id[ID_TEXT];
    int64_t epoch;
    int64_t sequence; /* commits; 0 before schema 3 */
    int64_t last_job, jobs;
};

MUST_CHECK enum err_code content_read(sqlite3 *db, struct content *out, struct err *e);
/* PRAGMA quick_check: DATA_LOSS names the first damage. The check finds broken pages and rows, but not a
 * changed character inside a text. It stops after limit_ms; the database then counts as sound.
 * CANCELLED: *stop is true; stop may be NULL. */
MUST_CHECK enum err_code content_check(sqlite3 *db, int64_t limit_ms, const atomic_bool *stop, struct err *e);

#endif
