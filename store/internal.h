#ifndef DDP_STORE_INTERNAL_H
#define DDP_STORE_INTERNAL_H

#include <sqlite3.h>

#include "base/id.h"
#include "store/store.h"

/* What store.c, commit.c and load.c share. */

enum statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_JOB_INSERT,
    ST_JOB_PUT,
    ST_JOB_MOVE,
    ST_JOB_FORGET,
    ST_JOB_FORGET_EVENTS,
    ST_NODE_INSERT,
    ST_NODE_PUT,
    ST_NODE_MOVE,
    ST_NODE_DELETE,
    ST_GENERATION_INSERT,
    ST_GENERATION_PUT,
    ST_GENERATION_MOVE,
    ST_RANK_INSERT,
    ST_RANK_PUT,
    ST_RANK_MOVE,
    ST_SPAWN_INSERT,
    ST_SPAWN_PUT,
    ST_SNAPSHOT_PUT,
    ST_SNAPSHOT_DELETE,
    ST_EVENT_INSERT,
    ST_COUNT,
};

struct store {
    char *dir;
    int lock_fd;
    sqlite3 *db;
    sqlite3_stmt *statements[ST_COUNT];
    char cluster_id[ID_TEXT];
    int64_t epoch;
};

MUST_CHECK enum err_code commit_prepare(struct store *s, struct err *e); /* fills statements */

#endif
