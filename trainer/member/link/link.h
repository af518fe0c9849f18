#ifndef DDP_TRAINER_MEMBER_LINK_LINK_H
#define DDP_TRAINER_MEMBER_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A worker's ties to the outside: progress lines on DDP_REPORT_FD, and the Rendezvous service of the
 * coordinator (Join, Watch, CommitSnapshot). A worker never stops because the coordinator is away: lines are
 * dropped when nobody reads, Join and CommitSnapshot wait for it, Watch redials for ever.
 *
 * Threads: link_progress, link_stop_asked and the other readers of flags from any thread; the rest from the
 * owner, but link_commit_snapshot and link_snapshot_failure, which are meant for the thread that writes
 * snapshots. The Watch thread only sets flags and calls the one callback. */

struct link;

/* Who this process is and where it runs, for as long as it lives. From its environment: DDP_JOB_ID,
 * DDP_SPAWN, LOCAL_RANK, GROUP_RANK; DDP_NODE_ADDRESS, where peers reach this node (127.0.0.1 without it);
 * DDP_CLUSTER_ID, whose job numbers these are ("" without it); DDP_RUN_DIR, the supervisor's directory for
 * this job, where ranks of a node meet (NULL without it). Standalone: job 0. */
struct link_place {
    int64_t job, spawn;
    int local_rank, node_rank;
    const char *address, *directory, *cluster;
};
/* Its place in one generation. A process may be in several, one after the other; in the first it is what
 * DDP_GENERATION, RANK and WORLD_SIZE say (standalone: generation 1, rank 0 of 1). */
struct link_member {
    int64_t generation;
    int rank, world_size;
};

/* Reads the environment: those above, DDP_REPORT_FD, DDP_TOKEN_FD (the token's bytes; read once to their end,
 * then closed) and DDP_COORDINATOR (host:port, [v6]:port or unix:/path; DDP_TLS_CA, DDP_TLS_CERT and
 * DDP_TLS_KEY name PEM files). Standalone, or without DDP_COORDINATOR, Join answers a world of this one
 * process and commits succeed at once; standalone, lines go to stdout where there is no DDP_REPORT_FD.
 * SIGPIPE is ignored from here on. */
MUST_CHECK enum err_code link_open(struct link **out, bool standalone, struct err *e);
void link_close(struct link *r); /* ends the Watch thread and calls in progress; NULL is fine */
const struct link_place *link_place(const struct link *r);
const struct link_member *link_first_member(const struct link *r);
bool link_has_coordinator(const struct link *r);

/* ---- progress */

struct link_metric {
    const char *name;
    double value; /* not finite: left out */
};
/* One JSON line, {"step": 120, "loss": 0.25, ...}; step < 0: without step. Never blocks: dropped when the
 * pipe is full. */
void link_progress(struct link *r, int64_t step, const struct link_metric *metrics, size_t count);
uint64_t link_dropped(const struct link *r);

/* ---- joining a generation */

/* A snapshot this process could load. */
struct link_offer {
    int64_t job, generation, step;
    const char *digest, *path;
    bool committed; /* a COMMITTED.json that this process has checked */
};
/* Rank 0 alone is asked, once all are there: writes at most cap (4096) bytes. */
typedef enum err_code (*link_bootstrap_fn)(void *arg, uint8_t *out, size_t cap, size_t *size, struct err *e);
struct link_join {
    const uint8_t *address; /* of this rank's collectives, opaque */
    size_t address_size;
    const struct link_offer *offers;
    size_t offer_count;
    char *const *unusable;            /* snapshots that it cannot offer, and why; NULL-terminated, or NULL */
    link_bootstrap_fn make_bootstrap; /* NULL: 128 random bytes */
    void *bootstrap_arg;
};
struct link_peer {
    int rank, node_rank, local_rank;
    char *node;
    uint8_t *address;
    size_t address_size;
};
struct link_group {
    int64_t generation;
    int rank, world_size;
    struct link_peer *peers; /* world_size of them, by rank */
    uint8_t *bootstrap;
    size_t bootstrap_size;
    uint8_t key[32];
    bool loopback;              /* all members share the node */
    int source_rank;            /* who loads and broadcasts state; -1: all start from scratch */
    struct link_offer source;   /* what it loads; texts owned by the group */
    int64_t scratch_generation; /* snapshots of the job up to this one do not count; 0: all do */
};
/* Checks that the coordinator's name has an address here, and waits a while for one. The separate exit code
 * tells the coordinator that the node is at fault; a Join that never comes would only say that a rank is
 * missing. */
MUST_CHECK enum err_code link_find_coordinator(struct link *r, struct err *e);

/* Takes part in a generation, later than all before; returns when all have joined. What the link says from
 * here on (link_over, commits) is about this one. ABORTED: the generation is closed. FAILED_PRECONDITION,
 * PERMISSION_DENIED, UNAUTHENTICATED: not a member. CANCELLED: link_close, or SIGTERM's link_cancel. */
MUST_CHECK enum err_code link_join(struct link *r, const struct link_member *as, const struct link_join *join,
                                   struct link_group *out, struct err *e);
void link_group_release(struct link_group *g);

/* ---- watching */

/* Called on the Watch thread when the generation that this process joined last is over: its collectives must
 * be aborted. May only set flags and call coll_abort and coll_listener_abort with that generation. */
typedef void (*link_over_fn)(void *arg, int64_t generation);
/* From here until link_unwatch `over` is called, once: at once if the generation is over already. The first
 * call starts the thread, which stays for later ones; without coordinator nothing happens. */
MUST_CHECK enum err_code link_watch(struct link *r, link_over_fn over, void *arg, struct err *e);
void link_unwatch(struct link *r); /* when it returns, `over` is not running and is not called any more */
/* Where a signal that ends this worker is noted (not 0). Before link_watch. */
void link_heed_signal(struct link *r, const volatile int *number);
/* The worker was to stop while the coordinator was away, so snapshots stay uncommitted. */
bool link_given_up(const struct link *r);
/* Two levels, about the generation joined last; joining the next one clears them. */
bool link_stop_asked(const struct link *r); /* finish the step, snapshot, exit 0 */
bool link_over(const struct link *r);       /* it is over, or this process is no member any more */
/* Ends for good what waits for the coordinator (Join, CommitSnapshot return CANCELLED) and Watch. Any thread.
 */
void link_cancel(struct link *r);

/* ---- snapshots */

struct link_snapshot {
    int64_t step, bytes;
    const char *digest; /* sha256 over the files, in hex */
    const char *path;   /* absolute */
};
/* Blocks until the coordinator has committed it, however long it is away. ABORTED: another generation is
 * current, the snapshot must not count. */
MUST_CHECK enum err_code link_commit_snapshot(struct link *r, const struct link_snapshot *s, struct err *e);
/* Tells the coordinator that the snapshot of this step could not be written; blocks like the function above.
 */
void link_snapshot_failure(struct link *r, int64_t step, const struct err *why);

#endif
