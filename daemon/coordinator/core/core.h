#ifndef DDP_DAEMON_COORDINATOR_CORE_CORE_H
#define DDP_DAEMON_COORDINATOR_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/job/job.h"
#include "store/change.h"
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

/* ------------------------------------------------------------------ events */

struct core_gpu {
    char *uuid, *name, *problem, *driver; /* NULL: unknown */
    int64_t memory_bytes, memory_used;
    int index, temperature, power_watts;
    double utilisation;
    bool healthy;
    bool lost; /* fell off the bus: what runs on it is over */
};

/* The head of a card that a node keeps: the job, and how far the job had come at that time (card.c). */
struct core_card_head {
    int64_t job, progress;
};

struct core_hello {
    const char *node, *instance, *session_id, *version, *cluster_id, *address, *log_dir;
    const char *nccl;        /* "2.28.9", of its trainer; "none": that cannot use GPUs; NULL, "": unknown */
    const char *plugin;      /* all that the trainer uses there: "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0" */
    int64_t epoch, revision; /* of the wish the agent keeps */
    int cpu_slots, cores, port_first, port_last;
    int procs;      /* workers that a job has on this node, whatever the job says; 0: as it says */
    int seat, turn; /* of a run's node: the node rank it wants, plus 1 (0: any), and when it joined */
    int64_t memory_bytes;
    const struct core_gpu *gpus;
    size_t gpu_count;
    int gpu_slots; /* workers that share a GPU, 0: 1 */
    bool keeps_cards;
    const struct core_card_head *heads; /* of all cards that it keeps */
    size_t head_count;
    const struct records *cards; /* those that core_wants_card asked for, one job each */
    size_t card_count;
};

enum core_fact_state { FACT_STARTING, FACT_RUNNING, FACT_STOPPING, FACT_EXITED };
struct core_fact {
    int64_t job, spawn, generation;
    enum core_fact_state state;
    int64_t pid, started_ms, ended_ms; /* times: the node's wall clock */
    int code, signal;
    bool out_of_memory, lost, not_started, port_busy, lease_expired;
    bool node_trouble;                 /* not started, and another node might well start it */
    bool no_account;                   /* the only reason: the job's user has no account there */
    bool stopped;                      /* it was told to stop before it ended */
    const char *message, *stderr_tail; /* the tail's lines joined by '\n' */
};

struct core_metric {
    const char *name;
    double value;
};
struct core_report {
    int64_t job, spawn, time_ms, step;
    bool has_step;
    const struct core_metric *metrics;
    size_t metric_count;
};

struct core_offer { /* a snapshot that a joining process could load */
    int64_t job, generation, step;
    const char *digest, *path;
    bool committed; /* carries a COMMITTED.json that the process has checked */
};

struct core_activity { /* of a quiet worker; ms, -1: it is not */
    int64_t job, spawn, idle_ms, silent_ms;
    char state; /* 'T', 'D', 0 */
};

struct core_account { /* a user whose jobs cannot run on a node, and the sentence that says so */
    const char *user, *why;
};

enum core_event_kind {
    /* users; each has a call */
    CORE_SUBMIT,
    CORE_CANCEL,
    CORE_RESIZE,
    CORE_RESTART,
    CORE_DRAIN,
    CORE_UNDRAIN,
    CORE_FORGET,
    /* agents; each has a session. All but HELLO of a session that is not the node's newest are ignored. */
    CORE_HELLO,
    CORE_HEARTBEAT,
    CORE_FACTS,
    CORE_REPORTS,
    CORE_ACTIVITY,
    CORE_LOOKED, /* answers EFFECT_LOOK */
    CORE_GOODBYE,
    CORE_SESSION_CLOSED,
    /* from the core's owner: for some time until now it received no messages; has no call and no session */
    CORE_DEAF,
    /* native workers; each has a call and the member whose token it came with (core_find_token) */
    CORE_JOIN,
    CORE_PUT_BOOTSTRAP,
    CORE_WATCH,
    CORE_COMMIT_SNAPSHOT,
    CORE_SNAPSHOT_FAILED,
    CORE_CALL_GONE, /* call */
    CORE_EVENT_KINDS
};

struct core_event {
    enum core_event_kind kind;
    uint64_t call;    /* who gets the reply */
    uint64_t session; /* an agent's stream */
    struct {
        int64_t job, spawn;
    } member; /* a worker's identity, by its token; what the request claims is checked against it */
    union {
        struct {
            const char *request_id, *job_file, *user;
            char *const *env;  /* NULL-terminated or NULL */
            int64_t continues; /* 0: none; the new job starts from that job's newest committed snapshot */
            bool resume;       /* continue whatever job's snapshots the directory holds */
            uint8_t digest[DIGEST_BYTES]; /* of the whole request, user left out */
        } submit;
        struct {
            int64_t job;
            bool kill;
            const char *why; /* NULL or empty: the user wanted it */
            int signal;      /* for a command's processes, 0: SIGTERM */
            int exit_code;   /* not 0: it has failed with this one */
        } cancel;
        struct {
            int64_t job, nodes_min, nodes_max; /* nodes: resize only */
            bool from_scratch;                 /* restart only: snapshots up to now do not count */
        } resize;
        struct {
            const char *name, *reason;
        } node; /* drain, undrain, forget */
        struct core_hello hello;
        struct {
            int64_t sequence;
            double load;
            int64_t memory_free;
            const struct core_gpu *gpus; /* what changed; may be none */
            size_t gpu_count;
            const struct core_account *accounts; /* all of the node's */
            size_t account_count;
        } heartbeat;
        struct {
            int64_t epoch, revision; /* of the wish they answer */
            const struct core_fact *facts;
            size_t count;
        } facts;
        struct {
            const struct core_report *reports;
            size_t count;
        } reports;
        struct {
            const struct core_activity *spawns; /* all of the node that are quiet */
            size_t count;
        } activity;
        struct {
            int64_t generation;
            int rank;
            const uint8_t *address;
            size_t address_size;
            const struct core_offer *offers;
            size_t offer_count;
            char *const *unusable; /* snapshots that it cannot offer, and why; NULL: none */
            size_t unusable_count;
        } join;
        struct {
            int64_t generation;
            int rank;
            const uint8_t *bytes;
            size_t size;
        } bootstrap;
        struct {
            int64_t ms;
            bool outside; /* messages on open streams were received; only new streams could not be opened */
        } deaf;
        struct {
            int64_t generation; /* where the process is */
        } watch;
        struct {
            int64_t generation, step, bytes;
            const char *digest, *path;
            const char *why; /* it failed: with path and error */
        } snapshot;
        struct {
            int64_t job;
            bool found; /* one of core_snapshot_paths */
        } looked;
    };
};

/* ------------------------------------------------------------------ what comes out */

enum core_join_state { CORE_JOIN_PENDING, CORE_JOIN_BOOTSTRAP, CORE_JOIN_READY }; /* the wire's numbers */

enum core_effect_kind {
    EFFECT_REPLY, /* call, err; after OK: submit has job and existed; cancel, resize, restart have job */
    EFFECT_JOIN,  /* call, state, job, generation: core_generation and core_rank have the answer's content */
    EFFECT_WATCH, /* call, member, generation, rank, stop; after !member end the stream */
    EFFECT_WELCOME,      /* session */
    EFFECT_REFUSE,       /* session, err: end it with this status */
    EFFECT_CLOSE,        /* session: a newer one of the same agent took over; end it with ABORTED */
    EFFECT_ACK,          /* session, sequence: renews the node's leases */
    EFFECT_PARDON,       /* session: the operator holds the node's GPUs for well */
    EFFECT_WISH,         /* session, node: send core_wish(node) */
    EFFECT_LOOK,         /* session, job: ask the node whether core_snapshot_paths(job) are there */
    EFFECT_JOB_CHANGED,  /* job: its status is another; tell who watches it */
    EFFECT_NODE_CHANGED, /* node; state LOST: end its log reads and say so */
};

struct core_effect {
    enum core_effect_kind kind;
    uint64_t call, session;
    int64_t job, generation, sequence;
    int rank;
    enum core_join_state state;
    bool existed, member, stop;
    char *node; /* owned by the effect */
    struct err err;
};

struct core_out {
    struct change *changes;
    struct core_effect *effects;
    size_t change_count, change_cap, effect_count, effect_cap;
};
void core_out_clear(struct core_out *out); /* keeps the arrays */
void core_out_release(struct core_out *out);

/* ------------------------------------------------------------------ the core */

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

/* ------------------------------------------------------------------ views; borrowed until the next event */

const struct job_record *core_job(const struct core *core, int64_t job);
const struct job_spec *core_job_spec(const struct core *core, int64_t job);
const struct node_record *core_node(const struct core *core, const char *name);
const struct generation_record *core_generation(const struct core *core, int64_t job, int64_t generation);
const struct rank_record *core_rank(const struct core *core, int64_t job, int64_t generation, int rank);

enum core_stop {
    CORE_STOP_NONE,
    CORE_STOP_SNAPSHOT,
    CORE_STOP_TERM,
    CORE_STOP_KILL
}; /* the wire's numbers */

/* A node's whole wish. Texts are borrowed from the core; release frees the arrays. A group is a job's workers
 * on this node. Every spawn in it is not known dead: start it unless it was ever started (an exited one is
 * reported again, never started again), and keep its exit record; exit records of spawns that are not in the
 * wish may be deleted. */
struct core_wish_spawn {
    int64_t spawn, generation;
    int rank, local_rank, cpu_slot; /* cpu_slot -1: none */
    const uint8_t *token;           /* 32 bytes */
    char *const *gpu_uuids;
    enum core_stop stop;
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
    int stop_signal; /* 0: SIGTERM */
    struct core_wish_spawn *spawns;
    size_t spawn_count;
};
struct core_wish {
    int64_t epoch, revision;
    struct core_wish_group *groups;
    size_t group_count;
    struct core_wish_card { /* a card that the node shall keep for us, besides those that it has */
        int64_t job, progress;
        bool ended, drop; /* drop: the card is of a job that ended long ago */
    } * cards;
    size_t card_count;
};
MUST_CHECK enum err_code core_wish(const struct core *core, const char *node, struct core_wish *out,
                                   struct err *e);
void core_wish_release(struct core_wish *wish);

/* True if this card of a node is newer than our records of the job: the node then sends it with its hello. */
bool core_wants_card(const struct core *core, const char *node, const struct core_card_head *head);
/* The job, its generations that count, their ranks and spawns, its newest snapshots: copies, for
 * records_release. False: there is no such job. */
bool core_card(const struct core *core, int64_t job, struct records *out);
/* True while nodes may have newer records than ours and may report workers that we do not know. */
bool core_may_learn(const struct core *core, struct core_now now);

/* What ddpctl shows of a job. Texts are borrowed; release frees the arrays. */
#define CORE_METRICS 32
#define CORE_LOSS_HISTORY 32
struct core_progress {
    int64_t step, steps, updated_ms; /* steps 0: unknown */
    double epoch;
    double steps_per_s;         /* smoothed over some seconds; 0: not known yet */
    int64_t pace_step, pace_ms; /* where it was measured last (boot) */
    struct {
        char name[32];
        double value;
    } metrics[CORE_METRICS];
    size_t metric_count;
    double loss_history[CORE_LOSS_HISTORY]; /* oldest first */
    size_t loss_count;
    bool has_best_val;
    double best_val;
    int64_t best_val_step;
};
struct core_rank_status {
    const struct rank_record *rank;
    const struct spawn_record *spawn;
    char device[48], detail[64]; /* "cpu3", "gpu0 H200"; "killed by signal 9" */
    int64_t step, memory_bytes;
    double ms_per_step, wait_ms;
};
struct core_job_status {
    const struct job_record *job;
    const struct job_spec *spec;
    const struct generation_record *generation; /* the newest; NULL before the first */
    char reason[512];                           /* the record's, or what a queued job waits for now */
    const char *log_dir;                        /* of the first node; may be NULL */
    char **nodes; /* of that generation, by node rank; borrowed texts, NULL-terminated */
    struct core_rank_status *ranks;
    size_t rank_count;
    int joined;
    const struct core_progress *progress;
    const struct spawn_record *failure;     /* first failing member of the last failed generation, or NULL */
    const struct snapshot_record *snapshot; /* newest committed, or NULL */
    char stall[256];                        /* who stands still, while it runs; empty: nobody */
    char **notes; /* problems that do not stop the job, NULL-terminated; owned; NULL: none */
};
MUST_CHECK enum err_code core_job_status(const struct core *core, int64_t job, bool with_ranks,
                                         struct core_job_status *out, struct err *e);
void core_job_status_release(struct core_job_status *status);
/* A generation's members by rank, for whoever asks why a job is as it is; the caller frees the array. */
struct core_member {
    const struct rank_record *rank;
    const struct spawn_record *spawn;
    int64_t step, report_age_ms; /* age -1: none came, or the coordinator was started since */
    double ms_per_step, wait_ms;
};
struct core_member *core_members(const struct core *core, int64_t job, int64_t generation,
                                 struct core_now now, size_t *count); /* NULL: there is no such generation */
/* One file of each of the job's newest committed snapshots that count: if the file exists, so does the
 * snapshot. The caller frees (strv_free); NULL: there are none. */
char **core_snapshot_paths(const struct core *core, int64_t job);
/* Ids in growing order, those above `after`; the caller frees. */
int64_t *core_job_ids(const struct core *core, int64_t after, size_t *count);

struct core_node_status {
    const struct node_record *node;
    const char *state; /* the state's name, or "drained": draining and empty */
    const struct core_gpu *gpus;
    size_t gpu_count;
    int slots_free, gpus_free;
    const char *nccl, *plugin;
    int gpu_slots;
    int64_t *jobs; /* that have live workers there */
    size_t job_count;
    const int64_t *unknown_jobs; /* jobs that the node runs and that we do not know */
    size_t unknown_count;
    double load;
    int64_t memory_free, silent_ms; /* since the last word from it */
};
MUST_CHECK enum err_code core_node_status(const struct core *core, const char *name, struct core_now now,
                                          struct core_node_status *out, struct err *e);
void core_node_status_release(struct core_node_status *status);
const char **core_node_names(const struct core *core,
                             size_t *count); /* sorted, borrowed texts; the caller frees */

struct core_totals {
    int nodes, slots, slots_busy, gpus, gpus_busy, gpus_free, gpus_sick;
    int64_t jobs[JOB_CANCELLED + 1], restarts, generations;
};
void core_totals(const struct core *core, struct core_totals *out);

#endif
