#ifndef DDP_STORE_INTERNAL_H
#define DDP_STORE_INTERNAL_H

#include <sqlite3.h>

#include "base/id.h"
#include "base/seal.h"
#include "store/content.h"
#include "store/db.h"
#include "store/mark.h"
#include "store/store.h"

/* What the store's files share. */

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
    struct mark_file mark_file; /* not open in a passing cluster */
    struct mark mark;           /* as the last commit left things; the mark file's next content */
    size_t applied; /* changes at the front of the next list that are in the database, but not acknowledged */
    struct store_loss loss;
    uint8_t card_key[SEAL_KEY];
};

MUST_CHECK enum err_code commit_prepare(struct store *s, struct err *e); /* fills statements */
MUST_CHECK enum err_code commit_event(struct store *s, const struct event_record *event, struct err *e);
/* Counts one more commit; call it inside each transaction. */
MUST_CHECK enum err_code commit_sequence(struct store *s, int64_t sequence, struct err *e);

/* open.c: the database behind a store whose directory is locked */
MUST_CHECK enum err_code open_database(struct store *s, struct err *e);
void open_release(struct store *s);
MUST_CHECK enum err_code open_read_loss(struct store *s, struct err *e);
/* Writes cluster id, epoch and sequence as s->mark has them, inside of a transaction. */
MUST_CHECK enum err_code open_put_epoch(struct store *s, struct err *e);

/* store.c: makes the directory, checks its file system and takes its lock */
MUST_CHECK enum err_code store_lock(struct store *s, struct err *e);

/* backup.c: one file without a log; found sound, and what it says of itself */
MUST_CHECK enum err_code backup_pages(sqlite3 *source, const char *to, struct content *content,
                                      struct err *e);
MUST_CHECK enum err_code backup_copy(const char *from, const char *to, struct content *content,
                                     struct err *e);

/* card_key.c: read, or made. Nothing is written where the store is deferred. */
MUST_CHECK enum err_code card_key_settle(struct store *s, struct err *e);

/* loss.c */
struct finding {
    struct mark mark; /* as the file has it, zero: none */
    enum mark_state mark_state;
    struct content content; /* of the database, schema 0: there is none */
};
/* DATA_LOSS: the database lacks commits that the mark has recorded; the message says which. */
MUST_CHECK enum err_code loss_check(const char *path, const struct finding *found, struct err *e);
/* DATA_LOSS: the file was deleted or replaced while in use, so further writes would be lost when this process
 * ends. All acknowledged commits are saved in a file that the message names. */
MUST_CHECK enum err_code loss_check_moved(struct store *s, struct err *e);
/* Moves the database and its log out of the way: path.why-TIME, path.why-TIME-wal. Missing files are fine. */
MUST_CHECK enum err_code loss_set_aside(const char *path, const char *why, struct err *e);
/* Records the loss inside the transaction that starts the epoch, so that job numbers are not assigned twice.
 */
MUST_CHECK enum err_code loss_record(struct store *s, const struct finding *found, int64_t epoch,
                                     const char *what, const char *text, struct err *e);

/* A number in the table meta. */
MUST_CHECK enum err_code loss_put(struct store *s, const char *key, int64_t value, struct err *e);

struct table;
/* Appends the rows that `where` selects to a growing array of records, *(record **)array_at; parameter is ?1.
 * A record that was read only in part counts too, so that its release frees the part. */
MUST_CHECK enum err_code load_rows(struct store *s, const struct table *t, const char *where,
                                   int64_t parameter, void *array_at, size_t *count, struct err *e);

#endif
