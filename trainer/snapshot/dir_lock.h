#ifndef DDP_TRAINER_SNAPSHOT_DIR_LOCK_H
#define DDP_TRAINER_SNAPSHOT_DIR_LOCK_H

#include "trainer/snapshot/snapshot.h"

/* One run at a time writes into a snapshot directory. The rank that writes there holds a flock on DIR/.lock, a JSON object
 * that names the holder. The kernel releases the lock when the process ends; the file of a process that was killed stays,
 * and means nothing. Two coordinators do not know each other's jobs, so only the directory can tell. */

#define SNAPSHOT_LOCK_FILE ".lock"

struct snapshot_holder {
    char cluster[SNAPSHOT_CLUSTER]; /* "": standalone */
    char host[256];                 /* "": not known */
    int64_t job, generation, pid;
};
/* "job 3 of cluster 0a4cce5e on box1 (pid 1234)" */
char *snapshot_holder_name(const struct snapshot_holder *h); /* the caller frees */

struct snapshot_lock { /* owned by the caller; fd -1: not held */
    char *path;
    int fd;
};
/* ALREADY_EXISTS: another process holds the lock; sets *holder. After other errors the directory cannot be locked, for example
 * because its file system has no locks. place: cluster, job and generation of this run. */
MUST_CHECK enum err_code snapshot_lock_take(struct snapshot_lock *lock, const char *dir,
                                            const struct snapshot_place *place,
                                            struct snapshot_holder *holder, struct err *e);
/* Also removes the file. A lock that is not held is fine. */
void snapshot_lock_release(struct snapshot_lock *lock);

#endif
