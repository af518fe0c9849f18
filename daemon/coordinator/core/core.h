#ifndef DDP_DAEMON_COORDINATOR_CORE_CORE_H
#define DDP_DAEMON_COORDINATOR_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crypto/id.h"
#include "base/err.h"
#include "base/job/job.h"
#include "daemon/coordinator/core/effect.h"
#include "daemon/coordinator/core/event.h"
#include "daemon/coordinator/core/status.h"
#include "daemon/coordinator/core/wish.h"
#include "store/record.h"

/* The coordinator's core makes all decisions, as a function (state, event, now) -> (changes, effects). It has
 * no gRPC, SQL, clock, thread or randomness of its own. One thread at a time.
 *
 * How its owner (the service, or the simulation) uses it:
 *   - call core_load once, with what store_load returned (empty records for a fresh cluster);
 *   - then, over and over: call core_event for everything that arrived, and core_tick when core_next_deadline
 * has come, all with one struct core_out; commit out.changes; when that is durable, carry out out.effects in
 * order; call core_out_clear. Hand in no event between a commit and its effects, so that whatever is built on
 * demand while effects run (core_wish, core_job_status) is committed state. If a commit fails (a full disk),
 * keep the out and try again; meanwhile hand in only events that the core need not remember, and refuse
 * submits with RESOURCE_EXHAUSTED. If it can no longer succeed, exit: the core is rebuilt from the records.
 *
 * The owner names calls and sessions by handles, never 0 and never reused. A call gets exactly one
 * EFFECT_REPLY or EFFECT_JOIN; a watch gets any number of EFFECT_WATCH. Hand in CORE_CALL_GONE when a call's
 * peer went away. All pointers in events are borrowed for the call. */

struct core;
struct core_hook;

struct core_now {
    int64_t boot_ms; /* CLOCK_BOOTTIME: leases, liveness, every deadline */
    int64_t wall_ms; /* for people, and for what must survive a restart */
};

/* Random bytes for tokens and keys. Those of the simulation depend on its seed. */
struct core_env {
    void (*random)(void *ctx, void *out, size_t size);
    void *ctx;
};

struct core_config {
    char cluster_id[ID_TEXT];
    int64_t epoch;            /* grows at each start; the store counts it */
    int64_t heartbeat_ms;     /* 3,000, told to agents */
    int64_t node_timeout_ms;  /* 9,000: a node is lost after this silence, and suspect after 3/4 of it */
    int64_t idle_beats;       /* 36,000: heartbeats a minute of all nodes without workers (nodes/beats.h) */
    int64_t return_ms;        /* 30,000: no node is lost sooner after a start or a stall of the coordinator */
    int64_t join_wait_ms;     /* 20,000: how long a Join waits before PENDING */
    int64_t lease_margin_ms;  /* 2,000: from the end of a lease until its processes count as dead */
    int64_t retain_jobs_ms;   /* 14 days: finished jobs older than this are removed */
    int64_t retain_jobs;      /* 1,000: of more finished jobs than this the oldest are removed */
    int64_t settle_ms;        /* 5,000: how long the nodes on offer must stay the same before a job grows */
    int64_t look_ms;          /* 30,000: how often nodes are asked for the snapshots that a job waits for */
    int64_t keep_generations; /* 256 of each job, and older ones that are of use (generation_thin.h) */
    int64_t max_queued;       /* 10,000 unfinished jobs: more are refused with RESOURCE_EXHAUSTED */
    const struct core_hook *hooks; /* notices.h; borrowed */
    size_t hook_count;
    char *const *tell_allow; /* tell_check's list for the `tell` of jobs; borrowed */
    bool no_cards;           /* nodes keep no cards: the cluster does not outlive its records */
};
void core_config_defaults(struct core_config *config);

struct core *core_create(const struct core_config *config, const struct core_env *env);
void core_free(struct core *core);
/* Takes over what was durable (copies). Leases count in full from now on, every node gets return_ms to come
 * back, and no session is known. `out` may get changes, because of deadlines that have passed meanwhile. */
MUST_CHECK enum err_code core_load(struct core *core, const struct records *records, struct core_now now,
                                   struct core_out *out, struct err *e);
void core_event(struct core *core, const struct core_event *event, struct core_now now, struct core_out *out);
void core_tick(struct core *core, struct core_now now, struct core_out *out);
/* Makes pending progress durable at once. Called before a clean end. */
void core_save(struct core *core, struct core_now now, struct core_out *out);
/* Whether nothing may be removed because of its age now: the wall clock may be ahead (clock_doubt.h). */
bool core_holds_ages(const struct core *core, struct core_now now);
int64_t core_next_deadline(const struct core *core); /* boot ms; INT64_MAX: none */

/* Returns the spawn that a worker's token belongs to, or NULL; compares few hashes (token_table.h). A spawn keeps its token for
 * its life, so the token alone does not say of which generation it is a member: each call names its
 * generation, and the core checks that. Revoked spawns are found too, so that their calls are answered
 * ABORTED (a Watch: not a member) instead of being refused as unknown. */
const struct spawn_record *core_find_token(const struct core *core, const void *token, size_t size);

/* Views: borrowed until the next event. status.h and wish.h have more. */
const struct job_record *core_job(const struct core *core, int64_t job);
int64_t core_job_step(const struct core *core, int64_t job); /* as far as it is known */
const struct job_spec *core_job_spec(const struct core *core, int64_t job);
const struct node_record *core_node(const struct core *core, const char *name);
const struct generation_record *core_generation(const struct core *core, int64_t job, int64_t generation);
/* Whether the generation starts from the state that its source rank has in memory: no file is read. */
bool core_generation_is_live(const struct generation_record *g);
const struct rank_record *core_rank(const struct core *core, int64_t job, int64_t generation, int rank);
/* The rank that the spawn has in the newest generation with it. NULL: there is no such spawn. */
const struct rank_record *core_spawn_rank(const struct core *core, int64_t job, int64_t spawn);

/* True if this card of a node is newer than our records of the job: the node then sends it with its hello. */
bool core_wants_card(const struct core *core, const char *node, const struct core_card_head *head);
/* The job, its generations that count, their ranks and spawns, its newest snapshots: copies, for
 * records_release. False: there is no such job. */
bool core_card(const struct core *core, int64_t job, struct records *out);
/* True while nodes may have newer records than ours and may report workers that we do not know. */
bool core_may_learn(const struct core *core, struct core_now now);

#endif
