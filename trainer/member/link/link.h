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
 * Threads: report_line, report_stop_asked and the other readers of flags from any thread; the rest from the
 * owner, but report_commit_snapshot and report_snapshot_failure, which are meant for the thread that writes
 * snapshots. The Watch thread only sets flags and calls the one callback. */

struct report;

/* Who this process is and where it runs, from its environment: DDP_JOB_ID, DDP_GENERATION, DDP_SPAWN,
 * RANK, WORLD_SIZE, LOCAL_RANK, GROUP_RANK; DDP_NODE_ADDRESS, where peers reach this node (127.0.0.1 without
 * it); DDP_CLUSTER_ID, whose job numbers these are (""
 * without it); DDP_RUN_DIR, the supervisor's directory for this job, where ranks of a node meet (NULL without
 * it). Standalone: job 0, generation 1, rank 0 of 1. */
struct report_place {
    int64_t job, generation, spawn;
    int rank, world_size, local_rank, node_rank;
    const char *address, *directory, *cluster;
};

/* Reads the environment: those above, DDP_REPORT_FD, DDP_TOKEN_FD (the token's bytes; read once to their end,
 * then closed) and DDP_COORDINATOR (host:port, [v6]:port or unix:/path; DDP_TLS_CA, DDP_TLS_CERT and
 * DDP_TLS_KEY name PEM files). Standalone, or without DDP_COORDINATOR, Join answers a world of this one
 * process and commits succeed at once; standalone, lines go to stdout where there is no DDP_REPORT_FD.
 * SIGPIPE is ignored from here on. */
MUST_CHECK enum err_code report_open(struct report **out, bool standalone, struct err *e);
void report_close(struct report *r); /* ends the Watch thread and calls in progress; NULL is fine */
const struct report_place *report_place(const struct report *r);
bool report_has_coordinator(const struct report *r);

/* ---- progress */

struct report_metric {
    const char *name;
    double value; /* not finite: left out */
};
/* One JSON line, {"step": 120, "loss": 0.25, ...}; step < 0: without step. Never blocks: dropped when the
 * pipe is full. */
void report_line(struct report *r, int64_t step, const struct report_metric *metrics, size_t count);
uint64_t report_dropped(const struct report *r);

/* ---- joining a generation */

/* A snapshot this process could load. */
struct report_offer {
    int64_t job, generation, step;
    const char *digest, *path;
    bool committed; /* a COMMITTED.json that this process has checked */
};
/* Rank 0 alone is asked, once all are there: writes at most cap (4096) bytes. */
typedef enum err_code (*report_bootstrap_fn)(void *arg, uint8_t *out, size_t cap, size_t *size,
                                             struct err *e);
struct report_join {
    const uint8_t *address; /* of this rank's collectives, opaque */
    size_t address_size;
    const struct report_offer *offers;
    size_t offer_count;
    char *const *unusable; /* snapshots that it cannot offer, and why; NULL-terminated, or NULL */
    report_bootstrap_fn make_bootstrap; /* NULL: 128 random bytes */
    void *bootstrap_arg;
};
struct report_peer {
    int rank, node_rank, local_rank;
    char *node;
    uint8_t *address;
    size_t address_size;
};
struct report_group {
    int64_t generation;
    int rank, world_size;
    struct report_peer *peers; /* world_size of them, by rank */
    uint8_t *bootstrap;
    size_t bootstrap_size;
    uint8_t key[32];
    bool loopback;              /* all members share the node */
    int source_rank;            /* who loads and broadcasts state; -1: all start from scratch */
    struct report_offer source; /* what it loads; texts owned by the group */
    int64_t scratch_generation; /* snapshots of the job up to this one do not count; 0: all do */
};
/* Takes part in the process's generation; returns when all have joined. ABORTED: the generation is closed,
 * exit. FAILED_PRECONDITION, PERMISSION_DENIED, UNAUTHENTICATED: not a member, exit. CANCELLED: report_close,
 * or SIGTERM's report_cancel. */
/* Checks that the coordinator's name has an address here, and waits a while for one. The separate exit code
 * tells the coordinator that the node is at fault; a Join that never comes would only say that a rank is
 * missing. */
MUST_CHECK enum err_code report_find_coordinator(struct report *r, struct err *e);

MUST_CHECK enum err_code report_join(struct report *r, const struct report_join *join,
                                     struct report_group *out, struct err *e);
void report_group_release(struct report_group *g);

/* ---- watching */

/* Called once, on the Watch thread, when this process's generation is over: its collectives must be aborted.
 * May only set flags and call coll_abort and coll_listener_abort with that generation. */
typedef void (*report_watch_fn)(void *arg, int64_t generation);
/* Starts the thread; without coordinator does nothing. */
MUST_CHECK enum err_code report_watch_start(struct report *r, report_watch_fn stale, void *arg,
                                            struct err *e);
/* Where a signal that ends this worker is noted (not 0). Before report_watch_start. */
void report_heed_signal(struct report *r, const volatile int *number);
/* The worker was to stop while the coordinator was away, so snapshots stay uncommitted. */
bool report_given_up(const struct report *r);
bool report_stop_asked(const struct report *r); /* finish the step, snapshot, exit 0 */
bool report_stale(
    const struct report *r); /* this generation is over, or this process is no member any more */
/* Ends for good what waits for the coordinator (Join, CommitSnapshot return CANCELLED) and Watch. Any thread.
 */
void report_cancel(struct report *r);

/* ---- snapshots */

struct report_snapshot {
    int64_t step, bytes;
    const char *digest; /* sha256 over the files, in hex */
    const char *path;   /* absolute */
};
/* Blocks until the coordinator has committed it, however long it is away. ABORTED: another generation is
 * current, the snapshot must not count. */
MUST_CHECK enum err_code report_commit_snapshot(struct report *r, const struct report_snapshot *s,
                                                struct err *e);
/* Tells the coordinator that the snapshot of this step could not be written; blocks like the function above.
 */
void report_snapshot_failure(struct report *r, int64_t step, const struct err *why);

#endif
