#ifndef DDP_TRAINER_MEMBER_LINK_LINK_H
#define DDP_TRAINER_MEMBER_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/worker/metric.h"

/* A worker's connection to the outside: progress lines on DDP_REPORT_FD, and the coordinator's Rendezvous
 * service: Join (join.h), Watch (watch.h) and CommitSnapshot (commit.h). A worker never stops because the
 * coordinator is away: Join and CommitSnapshot wait for it, and Watch redials forever. Progress lines are
 * dropped when nobody reads them.
 *
 * Threads: link_progress, link_stop_asked and the other functions that read flags may be called from any
 * thread, link_commit_snapshot and link_snapshot_failure from the thread that writes snapshots, all others
 * from the owner's thread. The Watch thread only sets flags and calls one callback. */

struct link;

/* This process and its node; does not change. Read from the environment: DDP_JOB_ID, DDP_SPAWN, LOCAL_RANK
 * and GROUP_RANK; DDP_NODE_ADDRESS, the address at which peers reach this node (127.0.0.1 if not set);
 * DDP_CLUSTER_ID, the cluster that the job number belongs to ("" if not set); DDP_RUN_DIR, the supervisor's
 * directory for this job, in which the node's ranks connect (NULL if not set). Standalone: job 0. */
struct link_place {
    int64_t job, spawn;
    int local_rank, node_rank;
    const char *address, *directory, *cluster;
};
/* The process's place in one generation. A process can be in several generations, one after the other. Its
 * first place is that of DDP_GENERATION, RANK and WORLD_SIZE (standalone: generation 1, rank 0 of 1). */
struct link_member {
    int64_t generation;
    int rank, world_size;
};

/* Reads the environment: the variables above, DDP_REPORT_FD, DDP_TOKEN_FD (the descriptor is read to its end
 * and closed) and DDP_COORDINATOR (host:port, [v6]:port or unix:/path; DDP_TLS_CA, DDP_TLS_CERT and
 * DDP_TLS_KEY name PEM files). Standalone, or without DDP_COORDINATOR, Join answers a world of this one
 * process, and commits succeed at once. Standalone without DDP_REPORT_FD, lines go to stdout. SIGPIPE is
 * ignored from here on. */
MUST_CHECK enum err_code link_open(struct link **out, bool standalone, struct err *e);
void link_close(struct link *r); /* ends the Watch thread and calls in progress; NULL is fine */
const struct link_place *link_place(const struct link *r);
const struct link_member *link_first_member(const struct link *r);
bool link_has_coordinator(const struct link *r);

/* ---- progress */

/* Writes the line to the report pipe; values that are not finite are left out. Never blocks: if the pipe is
 * full, the line is dropped. */
void link_progress(struct link *r, const struct metric_line *metrics);
uint64_t link_dropped(const struct link *r);

/* Ends Watch and all waiting for the coordinator, for good: Join and CommitSnapshot return CANCELLED. Any
 * thread. */
void link_cancel(struct link *r);

#endif
