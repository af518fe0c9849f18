#ifndef DDP_DAEMON_COORDINATOR_CORE_WISH_H
#define DDP_DAEMON_COORDINATOR_CORE_WISH_H

#include <stddef.h>
#include <stdint.h>

#include "base/crypto/id.h"
#include "base/err.h"
#include "base/job/job.h"

struct core;
struct job;
struct node;

/* A wish is one message, and an agent receives at most 16 MiB. So the job files and environments of the jobs on a node have at most
 * WISH_REQUESTS bytes, and the cards on their way to it, each with another copy, at most WISH_CARDS. One job has at most WISH_REQUEST.
 * Its environment has at most WISH_VARIABLES entries, because coordinator and agents compare each name with all others. */
#define WISH_REQUEST (256 << 10)
#define WISH_VARIABLES 2048
#define WISH_REQUESTS (10 << 20)
#define WISH_CARDS (4 << 20)

enum core_stop {
    CORE_STOP_NONE,
    CORE_STOP_SNAPSHOT,
    CORE_STOP_TERM,
    CORE_STOP_KILL
}; /* the wire's numbers */

/* A node's whole wish. Texts are borrowed from the core; release frees the arrays. A group is a job's workers
 * on this node. None of its spawns is known to be dead. The node starts a spawn that it never started, unless keep_only is set. A
 * spawn that has exited is reported again, and never started again. The node keeps the exit records of these spawns, and may delete
 * all others. */
struct core_wish_spawn {
    int64_t spawn;
    /* Its newest membership. The node needs it only if it has not started the spawn yet. */
    int64_t generation;
    int rank, local_rank;
    int64_t first_generation; /* as in spawn_record: where its logs are */
    int first_local_rank;
    int cpu_slot;         /* -1: none */
    const uint8_t *token; /* 32 bytes */
    char *const *gpu_uuids;
    enum core_stop stop;
    bool keep_only; /* do not start it; if it exists, it runs on */
    struct {        /* to what the process of a command asked for (worker_asks.c); all zero: nothing */
        int64_t commit, allowed, stop_step;
        const char *error;
        bool stale, agrees;
    } answer;
};
struct core_wish_group {
    int64_t job, generation;
    enum job_kind kind;
    const char *name, *job_file, *user, *master_addr;
    char *const *env;
    int64_t lease_ms, grace_ms, stall_timeout_ms;
    int world_size, node_rank, node_count, local_world_size, master_port;
    int64_t restart_count, max_restarts;
    char run_id[ID_TEXT + 32];
    int stop_signal;         /* 0: SIGTERM */
    const char *resume_path; /* of a command; NULL: none */
    bool from_scratch;       /* of a command: snapshots_from_scratch */
    struct core_wish_spawn *spawns;
    size_t spawn_count;
};
struct core_wish {
    int64_t epoch, revision;
    struct core_wish_group *groups;
    size_t group_count;
    struct core_wish_card { /* a card that the node should keep, in addition to those that it has */
        int64_t job, progress;
        bool ended, drop; /* drop: delete the card, its job ended long ago */
    } * cards;
    size_t card_count;
};
MUST_CHECK enum err_code core_wish(const struct core *core, const char *node, struct core_wish *out,
                                   struct err *e);
void core_wish_release(struct core_wish *wish);

/* Whether the node's wish can hold the job, too. */
bool wish_has_room(const struct node *node, const struct job *job);

/* Within the core: gives every wish that changed its next revision, and sends it. */
void wish_flush(struct core *core);

#endif
