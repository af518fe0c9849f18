#ifndef DDP_STORE_STORE_H
#define DDP_STORE_STORE_H

#include <stdbool.h>

#include "base/err.h"
#include "store/change.h"

/* The durable state of one cluster: <dir>/ddp.db, SQLite in WAL mode with synchronous=FULL. When store_commit
 * returns OK, the whole list is on disk. <dir>/ddp.mark holds the number of the last commit, so that a start
 * detects a database that has lost commits. One thread owns a store.
 *
 * A store is opened once: an exclusive flock on <dir>/lock is held for its life, and directories on network
 * file systems, where neither that lock nor WAL can be trusted, are refused. */
struct store;

/* Makes the directory (0700) and the database where missing, and brings an older schema up to date after
 * copying the database to <dir>/ddp.db.v<N>.bak. Each open is a new epoch. FAILED_PRECONDITION: another
 * process has it, the file system is remote, or the schema is newer than this program. DATA_LOSS: the
 * database is damaged, or lacks commits that were acknowledged; its files are left as they are. */
MUST_CHECK enum err_code store_open(struct store **out, const char *dir, struct err *e);
/* As store_open, for a cluster that ends with this process: commits survive the end of a process, but not
 * of the machine; nothing waits for the disk. */
MUST_CHECK enum err_code store_open_temporary(struct store **out, const char *dir, struct err *e);
/* As store_open, but also opens a database that lacks acknowledged commits (DATA_LOSS), and records the loss.
 */
MUST_CHECK enum err_code store_open_accepting(struct store **out, const char *dir, struct err *e);
void store_close(struct store *s);

/* The disk is full: the store was opened for reading, and its epoch is not durable. store_resume and each
 * store_commit try again: RESOURCE_EXHAUSTED while the disk is full. */
bool store_deferred(const struct store *s);
MUST_CHECK enum err_code store_resume(struct store *s, struct err *e);

/* The last time that the database lost commits: a backup was restored, or a loss accepted. Nodes may have
 * jobs with these numbers, which are not assigned again. */
struct store_loss {
    int64_t epoch;               /* the first after it, 0: it never did */
    int64_t first_job, last_job; /* numbers that the database has lost; last_job < first_job: none */
};
struct store_loss store_loss(const struct store *s);

const char *store_cluster_id(const struct store *s); /* random, made with the database */
int64_t store_epoch(const struct store *s);          /* grows at each open */
int64_t store_schema(const struct store *s);
/* The secret key that seals the cards on the nodes. SEAL_KEY bytes. */
const uint8_t *store_card_key(const struct store *s);

/* Applies the list in order in one transaction, then writes <dir>/ddp.mark. RESOURCE_EXHAUSTED (disk full,
 * input or output error) and UNAVAILABLE (another process holds the database's write lock): the caller must
 * not report the changes to anybody, and the next call must pass the same list, or one that begins with it.
 * The first call waits for the write lock for up to 2 s; after UNAVAILABLE, the next calls do not wait.
 * DATA_LOSS: the database is damaged.
 * INTERNAL: the list contradicts what is stored; a bug. */
MUST_CHECK enum err_code store_commit(struct store *s, const struct change *changes, size_t count,
                                      struct err *e);
/* After a failed store_commit. True: the next start may find the list in the database: the mark could not be written, or COMMIT
 * failed when the list was in the log. False: nothing of the list is in the database. */
bool store_in_doubt(const struct store *s);

/* Everything that a coordinator needs to continue: unfinished jobs with all below them, spawns not known
 * dead, finished jobs with their snapshots, nodes. Release it with records_release, whatever the result. */
MUST_CHECK enum err_code store_load(struct store *s, struct records *out, struct err *e);
/* One job with all below it, finished or not: NOT_FOUND. */
MUST_CHECK enum err_code store_load_job(struct store *s, int64_t job, struct records *out, struct err *e);
/* The names of all nodes on which the job had processes, by name; strv_free, also after an error. NULL: none. */
MUST_CHECK enum err_code store_job_nodes(struct store *s, int64_t job, char ***out, struct err *e);

/* At most limit events, oldest first: those with id > after, or the newest when after is 0 (-1: from the
 * start). Job 0 has those of the cluster itself. *out is one array; release with store_events_free. */
MUST_CHECK enum err_code store_events(struct store *s, int64_t job, int64_t after, size_t limit,
                                      struct event_record **out, size_t *count, struct err *e);
void store_events_free(struct event_record *events, size_t count);

/* Retention: keeps the newest `keep` events of each job and of the cluster. A call does a bounded part of the work. *more: the next
 * call continues it. */
MUST_CHECK enum err_code store_trim_events(struct store *s, int64_t keep, bool *more, struct err *e);

/* All users, by name. *out is one array; release with store_users_free. */
MUST_CHECK enum err_code store_users(struct store *s, struct user_record **out, size_t *count, struct err *e);
void store_users_free(struct user_record *users, size_t count);

/* The newest `limit` audit records that are not older than since_ms, oldest first. */
MUST_CHECK enum err_code store_audit(struct store *s, int64_t since_ms, size_t limit,
                                     struct audit_record **out, size_t *count, struct err *e);
void store_audit_free(struct audit_record *list, size_t count);

/* Retention: keeps the newest `keep` audit records that are not older than since_ms. Of these at most a tenth
 * are refused calls, so that refused calls cannot displace the records of changes. Callers with many records lose theirs first, so that
 * no caller can displace the records of others. */
MUST_CHECK enum err_code store_trim_audit(struct store *s, int64_t since_ms, int64_t keep, struct err *e);
#define STORE_AUDIT_REFUSED "call_refused" /* audit_record.what of a refused call */

/* Bytes that may still be written to the database's file system; INT64_MAX when unknown. With less than STORE_ROOM_LEAST
 * the disk counts as full: running jobs need that much for their records. */
#define STORE_ROOM_LEAST (8 << 20)
int64_t store_room(const struct store *s);

/* The name of a file system that a store refuses, else NULL. magic: statfs.f_type. */
const char *store_refused_fs(long magic);

#endif
