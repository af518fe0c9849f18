#ifndef DDP_DAEMON_COORDINATOR_CORE_MODEL_H
#define DDP_DAEMON_COORDINATOR_CORE_MODEL_H

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/name_table.h"
#include "daemon/coordinator/core/token_table.h"

/* The core's state in memory, which only the core's files share. A struct's record (r) is its durable part:
 * code that changes it also emits the change (emit.h). Everything else is rebuilt by core_load, or lives only
 * as long as the process. Deadlines are in boot ms, unless a comment says otherwise; 0: none. */

struct node;
struct generation;
struct internal_event;

/* One worker process. It may be a member of one generation after another, each time with another rank. */
struct spawn {
    struct spawn_record r;
    struct job *job;
    struct rank *rank;        /* the one that it holds in the newest generation that has it; see rank_give */
    struct node *node;        /* NULL once the node was forgotten */
    struct spawn *token_next; /* token_table.c */
    int64_t wished_revision; /* revision of the first wish of this epoch that lists this spawn; 0: none yet */
    /* The record is from before a restore, or from a card, and the node has not shown the process yet (adopt.c). */
    bool doubtful;
    uint64_t join_call;           /* the call that waits in Join; 0: none */
    int64_t join_at;              /* when the waiting Join is answered PENDING */
    const struct rank *joined_as; /* its rank when it called Join; its offers are of then; NULL: not yet */
    struct core_offer *offers;    /* without `elsewhere` */
    /* `elsewhere` of each offer, as numbers in the table offer_nodes of the generation that it joined */
    struct name_numbers *elsewhere;
    size_t offer_count;
    char **unusable;                     /* snapshots that it cannot use, with reasons; NULL: none */
    int64_t step, memory_bytes, samples; /* last reported values */
    double ms_per_step, wait_ms, sample_ms;
    int64_t report_ms;                 /* when its last report came; 0: no report yet */
    int64_t idle_since, silent_since;  /* since when its node reports it idle, or silent; 0: it is not */
    char proc_state;                   /* 'T' stopped, 'D' stuck in the kernel, 0: neither */
    int64_t idle_until;                /* when it was last heard to be idle; 0: never */
    char waits_in[64], waits_for[128]; /* while it is idle: as in core_activity */
    char stack[256];
    int cpu_permille; /* while it is silent: as in core_activity */
    int own_wait;
    struct {                /* idle.c */
        struct usage usage; /* what its node measured last */
        int64_t at;         /* when the coordinator heard it; 0: never */
        int64_t one_idle;   /* since when one of its GPUs is idle; 0: none is */
        int64_t all_idle;   /* since when all of its GPUs are idle; 0: they are not */
    } used;
    bool killed;  /* gets SIGKILL; a softer stop of its generation is for other members */
    bool stalled; /* was ended because it stood still; its record has that reason already */
    /* Its process can go on in the next generation (survivors.c). It says so again after a restart. */
    bool stays;
    bool stays_unsaid; /* loaded, and it has not said so yet: until it does, it counts as one that stays */
    int64_t ready;     /* the hand-over for which it waits between two steps (handover.c); 0: none */
    int64_t gathered;  /* bytes of state that it has gathered for a hand-over; 0: it does not gather */
    int64_t
        broken_generation; /* it has reported that the group of this generation is broken (broken_group.c); 0: none */
    int64_t
        arrived; /* quorum.c: the exchange at which it has arrived, in the generation of `rank`; 0: none yet */
    bool holds;  /* it waits there */
    int64_t late_from; /* the first exchange that was made without it; 0: not known */
    int64_t named;     /* the generation that the worker named last as its own; 0: none yet */
    int64_t live_step; /* said when it joined: the step whose state it has in memory; 0: none */
    struct { /* worker_asks.c: what it asked for, as far as this coordinator knows, and our answer */
        int64_t commit, promise;
        bool heeds, stale;
        char *error; /* why the snapshot was not committed; NULL: it is committed */
    } asked;
};

struct name_numbers {
    uint32_t *list;
    size_t count;
};

struct rank {
    struct rank_record r;
    struct generation *generation;
    struct spawn *spawn; /* who holds it, or held it: rank_is_held */
};

struct generation {
    struct generation_record r;
    struct job *job;
    struct rank *ranks;            /* world_size of them */
    enum core_stop stop;           /* how its workers are to be stopped */
    int64_t stop_at;               /* when to use the next stronger stop */
    int64_t born_ms;               /* when it was formed, or loaded */
    int64_t began_ms;              /* when it began to run, or was loaded; 0: not yet */
    int64_t join_at;               /* when forming fails; 0: the generation has formed */
    bool waits_longer;             /* an event says that it waits for survivors that still compute */
    struct name_table offer_nodes; /* names of the nodes that its ranks' offers name */
};

/* Snapshots that a node cannot write. */
struct snapshot_fault {
    char *node, *why;
    int rank;
    int64_t count, since_ms; /* number of failures, and the wall clock at the first one */
    int64_t spawn, step;     /* spawn and step of the last failure, so that a repeated call counts once */
    int64_t
        waits_until; /* by the boot clock: until then the rank tries the last snapshot again; 0: it does not wait */
};

/* A snapshot whose parts are not all there yet (pending_parts.c). */
struct pending_parts {
    int64_t generation, step, bytes;
    int count;           /* of the parts that are there */
    int failed_rank;     /* could not write its part; -1: none */
    bool *there;         /* by rank; NULL: none has come */
    char *digest, *path; /* of the shared files; NULL: nobody has written them yet */
    char **nodes;        /* that have the shared files */
};

struct job {
    struct job_record r;
    struct job_spec spec;
    struct generation **generations; /* in the order of their numbers */
    struct spawn **spawns;           /* in the order of their numbers */
    struct snapshot_record *snapshots;
    size_t generation_count, generation_cap, spawn_count, spawn_cap, snapshot_count, snapshot_cap;
    int64_t limit_at;   /* end of time_limit; 0: none, or it has not run yet */
    int64_t not_before; /* time before which the job does not start again, after a failure */
    bool held;          /* adopt.c: until not_before, unknown workers of the job may be alive */
    /* Its last generation failed, which counts as a restart unless survivors go on. The generation's record is
     * charged already, so that a restarted coordinator can tell. */
    bool charge_due;
    int64_t survivors_until; /* until when its survivors may wait for the next generation; 0: no longer */
    int64_t
        gpu_news_until; /* until when an error does not end the job, as news of its GPU may come; 0: no longer */
    int port_retries; /* generations in a row that ended because a port was in use */
    int node_retries; /* generations in a row that ended because a node could not start a worker */
    bool stall_told;  /* hooks have heard that it stands still */
    bool changed;     /* its watchers are informed at the end of this call */
    char *waits;      /* why it is not placed, for status; NULL: it does not wait */
    int64_t holder;   /* the job that holds the slots that it waits for; 0: none, or several */
    struct {          /* placement/too_small.c: `waits` says that the cluster is too small for this job */
        uint64_t capacity;           /* of these nodes (core.capacity); 0: it does not say so */
        int64_t revision, nodes_min; /* of its job file, and as resized */
    } too_small;
    char **targets; /* names of the nodes that are reserved for it */
    /* When it was stopped on purpose, so it is placed first, on its targets; 0: it was not. */
    int64_t drained_ms;
    struct core_progress progress;
    bool progress_due;  /* r.progress is out of date */
    int64_t stepped_in; /* the generation whose ranks have reported progress.step; 0: none, or unknown */
    struct {            /* where this generation's progress is counted from */
        int64_t step, boot_ms;
        int64_t gap;  /* steps between two reports of a rank; survives generations */
        int64_t from; /* the step that the generation started from, as far as that is known */
    } pace;
    int metric_rank[CORE_METRICS]; /* the lowest rank that reported this metric */
    bool metric_own[CORE_METRICS]; /* the program reports it itself, so its output no longer counts */
    int loss_stride, loss_skip;
    struct { /* curves.c: since when the loss has not moved */
        double loss;
        int64_t from_step, last_step, reports;
        int64_t told_in; /* the generation in which the event was recorded; 0: never */
        bool now;        /* long enough for a note */
    } still;
    struct { /* curves.c: rounds in a row whose agreement was low */
        int64_t rounds;
        int64_t generation, revision; /* those with which the rounds were made */
        double last;
        int64_t told_in; /* 1 + the revision of the job file for which the event was recorded; 0: never */
    } disagreement;
    char *capture_note;       /* a problem with reading metrics from the output; NULL: none */
    int64_t capture_noted_in; /* the generation that had the problem; the next one may not have it */
    int64_t capture_notes;    /* how many notes there were */
    int64_t fault_boot_ms;    /* r.fault_ms in boot ms */
    struct {                  /* elastic.c: the offer to run on more nodes */
        char **nodes;         /* names of the nodes that would join; NULL: none */
        int64_t first_ms, at; /* time of the first offer, and time when the job will stop to grow */
        bool asked;           /* the user asked for it: grow in the next pass at any cost */
    } grow;
    int64_t grown_ms;     /* when it last stopped to grow */
    struct {              /* handover.c: the members are asked to wait between two steps */
        int64_t number;   /* of this request, as in Watch; 0: none */
        int64_t last;     /* number of the last request */
        int64_t until;    /* when it is given up */
        int64_t again_at; /* no other one is asked for before */
        int failures;     /* hand-overs in a row that failed */
        char *why;
        char **joining; /* names of the nodes that join: no others do; NULL: those that placement finds */
        char **leaving; /* names of the nodes that the job leaves to another job */
        bool planned;   /* placement is looking for nodes: the members count as survivors */
    } handover;
    struct { /* the last hand-over, until its generation runs */
        int64_t generation, since_ms;
        int nodes; /* before it */
        char *why;
    } handed;
    struct {              /* quorum.c: the present round of a job with sync.quorum */
        int64_t exchange; /* at which most members have arrived; 0: none yet */
        int64_t met_at;   /* when a quorum had arrived; 0: not yet */
        int64_t
            formed_at; /* the exchange for which the generation was formed when a round closed; 0: it was formed otherwise */
        int64_t
            close_at; /* when the round closes without late members; 0: it does not, or the exchange is made */
        int64_t gaps[16]; /* ms from met_at to later arrivals: a ring of the newest */
        int64_t gap_count;
    } round;
    struct {              /* lost_snapshots.c: none of its snapshots could be found */
        int64_t look_at;  /* when nodes are asked for them; 0: the job does not wait */
        int64_t pause_ms; /* time between two searches */
        char *said;       /* the last reason, so that it becomes only one event */
        char **found;     /* nodes that have the snapshots; the job continues on one of them */
        char **lacks;     /* nodes that should have parts of them, and had not; NULL: none */
        bool
            needs_all; /* these nodes must be in the next generation: nothing continues without their parts */
        char **avoid;  /* of these, nodes on which the job is not placed, because a user made it smaller */
    } lost;
    struct left_out { /* left_out.c: a node on which the job could not run */
        char *node, *why;
        int64_t until;    /* the end of the present pause; 0: the node may be tried */
        int64_t pause_ms; /* length of the last pause */
    } * left_out;
    size_t left_out_count, left_out_cap;
    struct pending_parts parts;
    struct snapshot_fault *snapshot_faults; /* snapshot_faults.c: by node */
    size_t snapshot_fault_count, snapshot_fault_cap;
    struct { /* snapshot_faults.c: its last commit, or where its generation began */
        int64_t generation, step, boot_ms;
        double epoch;
        bool overdue; /* no commit for two snapshot intervals, and an event says so */
    } saved;
    struct {          /* idle.c */
        int64_t said; /* the generation for which an event says that GPUs are idle; 0: none */
        int64_t told; /* the generation for which hooks were told so; 0: none */
        int64_t over; /* the generation for which spec.idle.then was carried out; 0: none */
    } idle;
    char *went_back; /* why the newest snapshot could not be loaded; NULL after the next commit */
};

#define UNKNOWN_JOBS_MOST 64

struct node_session {
    uint64_t session;
    struct node *node;
};

struct node {
    struct node_record r;
    struct core_gpu *gpus;
    size_t gpu_count;
    int gpu_slots;      /* workers that share a GPU */
    char *nccl;         /* as in core_hello; not NULL after the first hello */
    char *plugin;       /* the same */
    uint64_t session;   /* 0: none. node_sessions_set changes it */
    int64_t heard_ms;   /* its last message; the leases of its spawns count from here */
    int64_t return_by;  /* not lost before this time: it reconnects, or we have just started */
    int64_t deaf_ms;    /* part of the time since heard_ms in which we could not receive */
    int64_t beat_ms;    /* how often it should send heartbeats */
    int64_t silence_ms; /* lost after this long without a message, from heard_ms on (nodes/beats.h) */
    int64_t revision, hello_revision;
    bool synced; /* its facts have answered our wish and show no unknown process */
    bool wish_dirty;
    struct spawn **spawns; /* not dead */
    size_t spawn_count, spawn_cap;
    int64_t unknown_jobs
        [UNKNOWN_JOBS_MOST]; /* jobs in its last facts that we do not know, growing; the first of them */
    size_t unknown_count;
    bool unknown_more; /* there were others */
    int next_port;
    int procs, seat, turn;       /* as in core_hello */
    char **accounts;             /* users who cannot run there, each followed by the reason; NULL: none */
    int64_t rest_until;          /* it could not start a worker: until then other nodes are used */
    int64_t alive_ms, steady_ms; /* alive since; no running job grows to it before */
    int flaps;                   /* losses in a row, each soon after the last return */
    double load;
    int64_t memory_free;
    bool keeps_cards;
    bool said_hello;   /* since we started: all its workers are known */
    bool clear_faults; /* undrained while it was away: its agent still has to clear the faults of its GPUs */
    struct node_card {
        int64_t job, acked, offered,
            revision; /* progress of its card; progress in the wish of that revision */
        bool drop;
    } * cards;
    size_t card_count, card_cap;
    struct { /* counts of the placement pass in progress */
        int cpu_total, cpu_busy, cpu_reserved, gpu_total, gpu_busy, gpu_reserved;
        int gpus;                     /* healthy GPUs; gpu_total counts each as often as it may be shared */
        int cpu_covered, gpu_covered; /* busy, and reserved for the same job */
    } place;
    struct gpu_reservation { /* of the pass in progress: gpu_choice.c */
        const struct job *job;
        int procs, gpus_each;
    } * reserved; /* the largest gpus_each first */
    size_t reserved_count, reserved_cap;
};

struct watcher {
    uint64_t call;
    struct spawn *spawn;
    int64_t revision; /* of the job file that its rank says is in use */
};

struct core {
    struct core_config config;
    struct core_env env;
    struct core_now now;           /* of the call in progress */
    struct core_out *out;          /* of the call in progress */
    struct job **jobs;             /* by id, growing */
    struct node **nodes;           /* by name */
    struct node_session *sessions; /* nodes/node_sessions.h: by session */
    size_t busy_count;             /* nodes with spawns that are not dead */
    struct watcher *watchers;
    struct token_table tokens; /* of all spawns; empty in a rehearsal */
    size_t job_count, job_cap, node_count, node_cap, session_count, session_cap, watcher_count, watcher_cap;
    int64_t
        revision; /* of wishes: one count for all nodes, so that a forgotten node that returns sees it grow */
    int64_t progress_at; /* when progress is made durable; 0: there is no news */
    int64_t next_job, wake_at, retain_at, restarts, generations;
    int64_t clock_wall,
        clock_boot;      /* clock_doubt.h: the clocks when they were last trusted; clock_wall 0: never */
    int64_t clock_saved; /* the last clock_wall in the records */
    int64_t clock_until; /* boot: the ages are held until then; 0: they are not */
    int64_t deaf_from, deaf_until; /* the last stretch in which we could not receive */
    int64_t learning_until;        /* 0: the records are not known to be older than the nodes' */
    bool records_doubted;          /* the store says RECORDS_LEARNING */
    int64_t gap_from, gap_to;      /* job numbers that lost records may have given out; 0: none */
    int64_t *removed; /* numbers of the gap whose jobs came back and were then removed by retention */
    size_t removed_count, removed_cap;
    struct internal_event *internal; /* internal_event.h; in the order in which they were raised */
    size_t internal_first, internal_count, internal_cap; /* the first one that is not dispatched yet */
    bool placement_due;     /* a pass could have another result than the last one; core_capacity_changed */
    uint64_t capacity;      /* a fingerprint of what the nodes could run (too_small.c); 0: no pass yet */
    int64_t queue_revision; /* grows whenever a pass becomes due: a forecast of an older one is stale */
    bool rehearses;         /* rehearsal.c: moves are not logged, since they do not happen */
};

/* Find, add, remove. Pointers stay valid until the object is removed. */
struct job *core_find_job(const struct core *core, int64_t id);
struct node *core_find_node(const struct core *core, const char *name);
struct job *core_find_request(const struct core *core, const char *request_id);
struct generation *job_find_generation(const struct job *job, int64_t number);
struct generation *job_current(const struct job *job); /* the newest, NULL before the first */
struct spawn *job_find_spawn(const struct job *job, int64_t number);
/* Gives the rank to the spawn. A spawn may be given ranks of several generations, in any order; s->rank is
 * that of the newest. */
void rank_give(struct rank *rank, struct spawn *s);
bool rank_is_held(const struct rank *rank);       /* its spawn has not gone on to a newer generation */
bool generation_open(const struct generation *g); /* neither closed nor failed */
bool generation_has_node(const struct generation *g, const char *node); /* one of its ranks is there */
void generation_free(struct generation *g);
bool generation_has_living(const struct generation *g); /* among the spawns that hold its ranks */
bool spawn_is_member(const struct spawn *s); /* of its job's open generation, with a token that is valid */
/* Whether the spawn's last generation has ended without stopping it, or would end like this now (job.handover.planned). The
 * job's next generation gives the spawn a rank, or stops it (generation_form.c). */
bool spawn_is_between(const struct spawn *s);
/* Whether its job goes on without it, because a round closed before it arrived (quorum.c). It is between two generations. */
bool spawn_is_late(const struct spawn *s);
void spawn_drop_offers(struct spawn *s);         /* and its complaints about snapshots */
size_t job_request_bytes(const struct job *job); /* job file and environment */
bool job_finished(const struct job *job);
/* Records that were restored may not have this generation yet: a survivor of one that they have may be its member. */
bool job_may_lack_generation(const struct job *job, int64_t generation);
/* The number of its newest generation, also of one that only living workers name (cards/lost_generation.c). */
int64_t job_newest_generation(const struct job *job);
bool job_keeps_state(const struct job *job); /* a train job that continues from its snapshots */
bool node_gone(const struct node *node);     /* lost or left */
bool spawn_reachable(const struct spawn *s); /* not dead, and its node can still report its death */
struct job *core_add_job(struct core *core, const struct job_record *record);
void core_remove_job(struct core *core, struct job *job);
struct node *core_add_node(struct core *core, const struct node_record *record);
void core_remove_node(struct core *core, struct node *node);
struct generation *job_add_generation(struct job *job, const struct generation_record *record);
struct spawn *job_add_spawn(struct core *core, struct job *job, const struct spawn_record *record);
/* The node should send a message soon: it is lost if none comes within node_timeout from now. */
void node_expect(struct core *core, struct node *node);
/* The node's card of the job; find: NULL if it has none. */
struct node_card *node_find_card(const struct node *node, int64_t job);
struct node_card *node_add_card(struct node *node, int64_t job);
void node_drop_spawn(struct core *core, struct node *node, const struct spawn *spawn);
bool names_contain(char *const *names, const char *name); /* names: NULL-terminated, or NULL */
/* Asks for a placement pass after this call. Emitted changes of jobs, nodes and generations do so by
 * themselves; this function is for the other inputs of placement. */
void core_capacity_changed(struct core *core);
/* Gives every node return_ms from now to reconnect before it counts as lost. */
void core_await_nodes(struct core *core);
void core_wake(struct core *core, int64_t at); /* asks for a tick at this time or earlier */

#endif
