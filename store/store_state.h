#ifndef DDP_STORE_STORE_STATE_H
#define DDP_STORE_STORE_STATE_H

#include <sqlite3.h>

#include "base/crypto/id.h"
#include "base/crypto/seal.h"
#include "store/db.h"
#include "store/mark.h"
#include "store/store.h"

/* The state of a store, which its parts share. Inside store/ only. */

enum statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_JOB_INSERT,
    ST_JOB_PUT,
    ST_JOB_MOVE,
    ST_JOB_PROGRESS,
    ST_JOB_FORGET,
    ST_JOB_FORGET_EVENTS,
    ST_NUMBER_REMOVED,
    ST_META,
    ST_NODE_INSERT,
    ST_NODE_PUT,
    ST_NODE_MOVE,
    ST_NODE_DELETE,
    ST_GENERATION_INSERT,
    ST_GENERATION_PUT,
    ST_GENERATION_MOVE,
    ST_GENERATION_DELETE,
    ST_RANK_INSERT,
    ST_RANK_PUT,
    ST_RANK_MOVE,
    ST_SPAWN_INSERT,
    ST_SPAWN_PUT,
    ST_SNAPSHOT_PUT,
    ST_SNAPSHOT_DELETE,
    ST_EVENT_INSERT,
    ST_USER_PUT,
    ST_USER_DELETE,
    ST_AUDIT_INSERT,
    ST_SEQUENCE,
    ST_NOTICE_INSERT,
    ST_COUNT,
};

struct store {
    char *dir;
    int lock_fd;
    sqlite3 *db;
    sqlite3_stmt *statements[ST_COUNT];
    enum db_sync sync; /* OFF: a temporary cluster (`ddpctl run`), which has no mark either */
    bool accept_loss;
    bool deferred; /* the disk was full at open: the database is read-only until store_resume succeeds */
    struct mark_file mark_file; /* not open in a temporary cluster */
    struct mark mark;           /* as the last commit left things; the mark file's next content */
    size_t applied; /* changes at the front of the next list that are in the database, but not acknowledged */
    bool unsure;    /* a COMMIT failed in a way that may have left the list in the log */
    struct store_loss loss;
    uint8_t card_key[SEAL_KEY];
};

/* Makes the directory, checks its file system and takes its lock */
MUST_CHECK enum err_code store_lock(struct store *s, struct err *e);

#endif
