#ifndef DDP_DAEMON_COORDINATOR_CORE_CORE_H
#define DDP_DAEMON_COORDINATOR_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/job/job.h"
#include "daemon/coordinator/core/effect.h"
#include "daemon/coordinator/core/event.h"
#include "daemon/coordinator/core/status.h"
#include "daemon/coordinator/core/wish.h"
#include "store/record.h"

/* The coordinator's core: everything it decides, as a function (state, event, now) -> (changes, effects). No
 * gRPC, no SQL, no clock, no thread, no randomness of its own; one thread at a time.
 *
 * How its owner (the service, or the simulation) uses it:
 *   core_load once, with what store_load returned (empty records on a fresh cluster);
 *   then, over and over: core_event for everything that arrived, core_tick when core_next_deadline has come,
 * all into one struct core_out; store_commit(out.changes); only when that is durable carry out out.effects,
 * in order; then core_out_clear. No event may be handed in between a commit and its effects, so whatever is
 * built on demand while effects run (core_wish, core_job_status) is committed state. When a commit fails (a
 * full disk), keep the out, try again, and hand in nothing but what the core need not remember; refuse
 * submits with RESOURCE_EXHAUSTED meanwhile. When it cannot succeed any more, exit: the core is rebuilt.
 *
 * Calls and sessions are named by handles that the owner chooses, never 0, never reused. A call gets exactly
 * one EFFECT_REPLY or EFFECT_JOIN (a watch: any number of EFFECT_WATCH). Say CORE_CALL_GONE when a call's
 * peer went away. All pointers in events are borrowed for the call. */

struct core;

struct core_now {
    int64_t boot_ms; /* CLOCK_BOOTTIME: leases, liveness, every deadline */
    int64_t wall_ms; /* for people, and for what must survive a restart */
};

/* Random bytes for tokens and keys; the simulation's repeat by seed. */
struct core_env {
    void (*random)(void *ctx, void *out, size_t size);
    void *ctx;
};

struct core_config {
    char cluster_id[ID_TEXT];
    int64_t epoch;           /* grows at each start; the store counts it */
    int64_t heartbeat_ms;    /* 3,000, told to agents */
    int64_t node_timeout_ms; /* 9,000: silence that is a loss; a node is suspect from 3/4 of it on */
    int64_t return_ms;       /* 30,000: after a start, or a stall of its own, no node is lost before */
    int64_t join_wait_ms;    /* 20,000: how long a Join waits before PENDING */
    int64_t lease_margin_ms; /* 2,000: after a lease's end, until its processes count as dead */
    int64_t retain_jobs_ms;  /* 14 days: finished jobs older than this are forgotten, ... */
    int64_t retain_jobs;     /* 1,000: ... and so are the oldest beyond this many */
    int64_t settle_ms;       /* 5,000: nodes that a running job could grow to must have come by then */
    int64_t look_ms;         /* 30,000: how often nodes are asked for the snapshots that a job waits for */
    int64_t max_queued;      /* 10,000 unfinished jobs: more are refused with RESOURCE_EXHAUSTED */
    bool no_cards;           /* the cluster does not outlive its records: nodes need not keep any */
};
void core_config_defaults(struct core_config *config);

struct core *core_create(const struct core_config *config, const struct core_env *env);
void core_free(struct core *core);
/* Takes over what was durable (copies). Leases count anew from now, every node gets node_timeout to come
 * back, no session is known. `out` may get changes (a deadline that passed meanwhile). */
MUST_CHECK enum err_code core_load(struct core *core, const struct records *records, struct core_now now,
                                   struct core_out *out, struct err *e);
void core_event(struct core *core, const struct core_event *event, struct core_now now, struct core_out *out);
void core_tick(struct core *core, struct core_now now, struct core_out *out);
/* Makes pending progress durable at once; called before a clean end. */
void core_save(struct core *core, struct core_now now, struct core_out *out);
int64_t core_next_deadline(const struct core *core); /* boot ms; INT64_MAX: none */

/* The member that a worker's token belongs to: compares hashes. NULL: nobody's. A revoked one is found too,
 * so that its calls are answered ABORTED (its Watch: not a member) instead of looking like a stranger's. */
const struct spawn_record *core_find_token(const struct core *core, const void *token, size_t size);

/* Views: borrowed until the next event. status.h and wish.h have more. */
const struct job_record *core_job(const struct core *core, int64_t job);
const struct job_spec *core_job_spec(const struct core *core, int64_t job);
const struct node_record *core_node(const struct core *core, const char *name);
const struct generation_record *core_generation(const struct core *core, int64_t job, int64_t generation);
const struct rank_record *core_rank(const struct core *core, int64_t job, int64_t generation, int rank);

/* True if this card of a node is newer than our records of the job: the node then sends it with its hello. */
bool core_wants_card(const struct core *core, const char *node, const struct core_card_head *head);
/* The job, its generations that count, their ranks and spawns, its newest snapshots: copies, for
 * records_release. False: there is no such job. */
bool core_card(const struct core *core, int64_t job, struct records *out);
/* True while nodes may have newer records than ours and may report workers that we do not know. */
bool core_may_learn(const struct core *core, struct core_now now);

#endif
