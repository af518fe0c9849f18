#ifndef DDP_STORE_BACKUP_H
#define DDP_STORE_BACKUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/crypto/id.h"
#include "base/err.h"

/* Copies of a coordinator's database: one file each, without a log. Any thread; none of this needs the store.
 */

struct backup {
    char *path;
    bool automatic;  /* it has a name of backup_name */
    bool own;        /* it is of the cluster whose backups come first */
    int64_t time_ms; /* when it was made, as the clock said then */
    char cluster_id[ID_TEXT];
    int64_t sequence, jobs, last_job;
};

/* dir/ddp-20261122T041200Z.db; the caller frees. */
char *backup_name(const char *dir);
/* Copies a consistent state of <state>/ddp.db, also while a coordinator writes, without blocking it. The copy
 * goes to a temporary file beside `to`, which is synced, checked and renamed. DATA_LOSS: the database is
 * damaged or behind ddp.mark; such a copy is not kept. CANCELLED: another thread has set *stop; stop may be NULL. */
MUST_CHECK enum err_code backup_make(const char *state, const char *to, const atomic_bool *stop,
                                     struct err *e);
/* Removes the temporary files in dir of automatic backups that were interrupted: those that are older than an hour, or from more than an
 * hour in the future. None of them is listed below. */
MUST_CHECK enum err_code backup_remove_unfinished(const char *dir, struct err *e);
/* The readable backups in dir with names that backup_name made, none if there is no such directory. Those of the cluster of `state`
 * come first. The backups of each cluster are in order, that with the most commits first. */
MUST_CHECK enum err_code backup_list(const char *dir, const char *state, struct backup **out, size_t *count,
                                     struct err *e);
/* Likewise, but also the backups to which a user gave another name. The database of `state` is not a backup. */
MUST_CHECK enum err_code backup_list_all(const char *dir, const char *state, struct backup **out,
                                         size_t *count, struct err *e);
/* What was saved of databases that were deleted while in use, likewise. */
MUST_CHECK enum err_code backup_list_rescued(const char *state, struct backup **out, size_t *count,
                                             struct err *e);
void backups_free(struct backup *list, size_t count);
/* Removes the oldest backups of backup_list in dir until `keep` are left. made: the newest one, which stays, whatever the clock
 * says; its path begins with dir. */
MUST_CHECK enum err_code backup_prune(const char *dir, size_t keep, const char *made, struct err *e);

/* Replaces the database of a stopped coordinator by a copy (FAILED_PRECONDITION: it runs). The present
 * database is renamed, never removed. The loss is recorded as in store_loss, and the next epoch is above all
 * epochs that nodes may have seen. Appends a report to *said. */
MUST_CHECK enum err_code backup_restore(const char *state, const char *file, struct buf *said, struct err *e);

#endif
