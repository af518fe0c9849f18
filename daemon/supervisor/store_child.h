#ifndef DDP_DAEMON_SUPERVISOR_STORE_CHILD_H
#define DDP_DAEMON_SUPERVISOR_STORE_CHILD_H

#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct spawn;

/* ddp-store, the process that serves PyTorch's TCPStore on MASTER_PORT to the ranks of one generation. It is a child of
 * the supervisor of rank 0's node, under the job's account, and dies with the supervisor. It begins to listen before
 * rank 0 is forked.
 *
 * ddp-store outlives rank 0, because a worker elsewhere may still need it. When all workers of the generation on this
 * node have ended, its pipe closes, and it ends with its last client; if they were stopped, or one of them failed, it
 * is killed then. If workers are stopped, and one of them has failed, it is killed at once: the others may wait for keys
 * of this worker, and such a wait does not look at signals. If it dies earlier, its clients' connections break, and the
 * workers fail. */
struct store_child {
    pid_t pid; /* 0: none */
    int64_t generation;
    int owner_fd; /* write end of its pipe; -1: closed */
    /* Whether a worker of the generation was told to stop, and whether one has failed. Kept here because the records of
     * workers that have ended are removed. */
    bool stopped, failed;
};

struct store_children {
    struct store_child *items;
    size_t count, cap;
};

/* Listens on the port at all addresses, as PyTorch's own store does, and starts the program. account: NULL for the
 * supervisor's own. ALREADY_EXISTS: the port is in use. */
MUST_CHECK enum err_code store_child_start(struct store_child *out, int64_t generation, int port,
                                           const struct passwd *account, struct err *e);

void store_children_take(struct store_children *all, struct store_child *s); /* leaves none in *s */
/* Closes the pipes of stores whose workers have ended, and kills those of generations that are over. */
void store_children_tick(struct store_children *all, struct spawn *const *spawns, size_t count);
void store_children_reaped(struct store_children *all, pid_t pid, int status, int64_t job);
void store_children_release(struct store_children *all);

/* A program that listens on MASTER_PORT itself fails if ddp-store is there. After such a failure the job's next
 * generations on this node get no ddp-store. The mark is a file in the supervisor's directory, which outlives the
 * supervisor. */
void store_child_forbid(const char *dir);
bool store_child_allowed(const char *dir);

#endif
