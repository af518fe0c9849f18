#ifndef DDP_STORE_STORE_H
#define DDP_STORE_STORE_H

#include "base/err.h"
#include "store/change.h"

/* The durable state of one cluster: <dir>/ddp.db, SQLite in WAL mode with synchronous=FULL. After
 * store_commit says OK the whole list is on disk; after anything else none of it is. One thread owns a store.
 *
 * A store is opened once: an exclusive flock on <dir>/lock is held for its life, and directories on network
 * file systems, where neither that lock nor WAL can be trusted, are refused. */
struct store;

/* Makes the directory (0700) and the database where missing, and brings an older schema up to date after
 * copying the database to <dir>/ddp.db.v<N>.bak. Each open is a new epoch. FAILED_PRECONDITION: another
 * process has it, the file system is remote, or the schema is newer than this program. */
MUST_CHECK enum err_code store_open(struct store **out, const char *dir, struct err *e);
/* As store_open, of a cluster that ends with this process: what was committed survives any process's end, and
 * not the machine's; nothing waits for the disk. */
MUST_CHECK enum err_code store_open_passing(struct store **out, const char *dir, struct err *e);
void store_close(struct store *s);

const char *store_cluster_id(const struct store *s); /* random, made with the database */
int64_t store_epoch(const struct store *s);          /* grows at each open */
int64_t store_schema(const struct store *s);

/* Applies the list in order in one transaction. RESOURCE_EXHAUSTED (disk full, input or output error) and
 * UNAVAILABLE (somebody else holds the database's write lock): nothing was applied, the same list may be
 * tried again. INTERNAL: the list contradicts what is stored; a bug. */
MUST_CHECK enum err_code store_commit(struct store *s, const struct change *changes, size_t count,
                                      struct err *e);

/* Everything that a coordinator needs to go on: unfinished jobs with all below them, spawns not known dead,
 * finished jobs with their snapshots, nodes. Release it with records_release, whatever the result. */
MUST_CHECK enum err_code store_load(struct store *s, struct records *out, struct err *e);
/* One job with all below it, finished or not: NOT_FOUND. */
MUST_CHECK enum err_code store_load_job(struct store *s, int64_t job, struct records *out, struct err *e);

/* At most limit events, oldest first: those with id > after, or the newest when after is 0 (-1: from the
 * start). Job 0 has those of the cluster itself. *out is one array; release with store_events_free. */
MUST_CHECK enum err_code store_events(struct store *s, int64_t job, int64_t after, size_t limit,
                                      struct event_record **out, size_t *count, struct err *e);
void store_events_free(struct event_record *events, size_t count);

/* Retention: keeps the newest `keep` events of each job and of the cluster. */
MUST_CHECK enum err_code store_trim_events(struct store *s, int64_t keep, struct err *e);

/* Bytes that may still be written where the database lies; INT64_MAX when unknown. */
int64_t store_room(const struct store *s);

/* The file system's name when it is one that a store refuses, else NULL. magic: statfs.f_type. */
const char *store_refused_fs(long magic);

#endif
