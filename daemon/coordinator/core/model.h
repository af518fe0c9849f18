#ifndef DDP_DAEMON_COORDINATOR_CORE_MODEL_H
#define DDP_DAEMON_COORDINATOR_CORE_MODEL_H

#include "base/buf.h"
#include "daemon/coordinator/core/core.h"

/* What the core's own files share: its state in memory, and the only ways to change what is durable in it
 * (emit_*). Records are the durable part; everything beside them is rebuilt by core_load or lives only as
 * long as the process. */

struct node;
struct generation;
struct place_choice;

struct spawn {
    struct spawn_record r;
    struct job *job;
    struct generation *generation;
    struct node *node;       /* NULL once the node was forgotten */
    int64_t wished_revision; /* of the first wish of this epoch that holds it, 0: none yet */
    uint64_t join_call;      /* who waits in Join, 0: nobody */
    int64_t join_at;         /* when that one gets PENDING */
    bool joined_here;        /* came to Join since core_load: its offers are known */
    struct core_offer *offers;
    size_t offer_count;
    char **unusable;            /* what it could not offer, and why; NULL: nothing */
    int64_t step, memory_bytes; /* last reported */
    double ms_per_step, wait_ms;
    int64_t report_ms;                /* boot: when its last report came, 0: none */
    int64_t idle_since, silent_since; /* boot, as its node says; 0: it is not */
    char proc_state;                  /* 'T' stopped, 'D' stuck in the kernel, 0 */
    bool stalled;                     /* ended because it stood still: its record says so already */
};

struct rank {
    struct rank_record r;
    struct spawn *spawn;
};

struct generation {
    struct generation_record r;
    struct job *job;
    struct rank *ranks;  /* world_size of them */
    enum core_stop stop; /* how its spawns are to be stopped */
    int64_t stop_at;     /* when that gets harder, 0: never */
    int64_t born_ms;     /* boot: when it was formed, or we came back to it */
    int64_t join_at;     /* when forming has taken too long, 0: it is formed */
};

/* Snapshots that a node cannot write. */
struct snapshot_fault {
    char *node, *why;
    int rank;
    int64_t count, since_ms; /* failures, and the wall clock at the first */
    int64_t spawn, step;     /* of the last one: a call that is repeated counts once */
};

struct job {
    struct job_record r;
    struct job_spec spec;
    struct generation **generations; /* by number, growing */
    struct spawn **spawns;           /* by number, growing */
    struct snapshot_record *snapshots;
    size_t generation_count, generation_cap, spawn_count, spawn_cap, snapshot_count, snapshot_cap;
    int64_t limit_at;   /* end of time_limit, 0: none or not running yet */
    int64_t not_before; /* back-off after a failure */
    bool held;          /* adopt.c: till then workers of it may live that we do not know */
    int port_retries;   /* generations in a row that only a taken port ended */
    int node_retries;   /* ... that only trouble of a node ended */
    bool changed;       /* tell who watches it */
    char *waits;        /* what it waits for to be placed; NULL: nothing */
    int64_t holder;     /* the job that holds it, 0: none in particular */
    char **targets;     /* names of the nodes that are kept free for it */
    int64_t drained_ms; /* boot: stopped on purpose, it goes on first, and on its targets; 0: not */
    struct core_progress progress;
    bool progress_due; /* r.progress is older */
    struct {           /* where this generation's progress is counted from */
        int64_t step, boot_ms;
        int64_t gap;  /* steps between two reports of a rank; kept from generation to generation */
        int64_t from; /* the step that its first report came from, as far as that is known */
    } pace;
    int metric_rank[CORE_METRICS]; /* the lowest rank that reported this metric */
    int loss_stride, loss_skip;
    int64_t fault_boot_ms;    /* r.fault_ms on the other clock */
    struct {                  /* resize.c: it could run on more nodes */
        char **nodes;         /* names of those that would join; NULL: none */
        int64_t first_ms, at; /* since when there were some; when it stops to take them in, 0: not */
        bool asked;           /* in the pass after a resize: now, whatever it costs */
    } grow;
    int64_t grown_ms;     /* when it last stopped to grow */
    struct {              /* lost.c: none of its snapshots could be found */
        int64_t look_at;  /* boot: it waits, and its nodes are asked then; 0: it does not wait */
        int64_t pause_ms; /* from one look to the next */
        char *said;       /* the last sentence, so that it becomes one event */
        char **found;     /* nodes that have them as their last look said: it goes on with one of these */
    } lost;
    struct snapshot_fault *snapshot_faults; /* faults.c: by node */
    size_t snapshot_fault_count, snapshot_fault_cap;
    struct { /* faults.c: its last commit, or where its generation began */
        int64_t generation, step, boot_ms;
        double epoch;
        bool overdue; /* nothing was committed for two snapshot intervals: it was said */
    } saved;
    char *went_back; /* the newest snapshot could not be loaded; NULL since the next commit */
};

struct node {
    struct node_record r;
    struct core_gpu *gpus;
    size_t gpu_count;
    int gpu_slots;     /* workers that share a GPU */
    char *nccl;        /* as in core_hello, never NULL once it said hello */
    char *plugin;      /* the same */
    uint64_t session;  /* 0: none */
    int64_t heard_ms;  /* boot: the last word from it; leases of its spawns count from here */
    int64_t return_by; /* boot: not lost before; it, or we, were away */
    int64_t deaf_ms;   /* of the time since heard_ms: it may have spoken, and we could not hear */
    int64_t revision, hello_revision;
    bool synced; /* facts since hello answered our wish and showed no stranger */
    bool wish_dirty;
    struct spawn **spawns; /* not dead */
    size_t spawn_count, spawn_cap;
    int64_t *unknown_jobs; /* that it runs and that we do not know, as its last facts say */
    size_t unknown_count;
    int next_port;
    int procs, seat, turn;       /* as in core_hello */
    char **accounts;             /* users who cannot run there, each followed by the reason; NULL: none */
    int64_t rest_until;          /* boot: it could start nothing, others are tried first; 0: it is well */
    int64_t alive_ms, steady_ms; /* boot: alive since; until then no running job grows to it */
    int flaps;                   /* losses, each soon after the last return */
    double load;
    int64_t memory_free;
    bool keeps_cards;
    bool said_hello; /* to us: of its workers there are none that we do not know */
    struct node_card {
        int64_t job, acked, offered, revision; /* progress it keeps; progress in the wish of that revision */
        bool drop;
    } * cards;
    size_t card_count, card_cap;
    struct { /* of the placement pass in progress */
        int cpu_total, cpu_busy, cpu_kept, gpu_total, gpu_busy, gpu_kept;
        int gpus;                     /* healthy ones; gpu_total counts each as often as it may be leased */
        int cpu_covered, gpu_covered; /* busy and kept for the same job */
    } place;
};

struct watcher {
    uint64_t call;
    struct spawn *spawn;
};

struct core {
    struct core_config config;
    struct core_env env;
    struct core_now now;  /* of the call in progress */
    struct core_out *out; /* of the call in progress */
    struct job **jobs;    /* by id, growing */
    struct node **nodes;  /* by name */
    struct watcher *watchers;
    size_t job_count, job_cap, node_count, node_cap, watcher_count, watcher_cap;
    int64_t revision; /* of wishes; one count for all nodes: a forgotten one that returns must see it grow */
    int64_t progress_at; /* boot: when progress is made durable, 0: nothing new */
    int64_t next_job, wake_at, retain_at, restarts, generations;
    int64_t deaf_from, deaf_until; /* boot: the last stretch in which we heard nothing */
    int64_t learning_until;        /* boot; 0: the records are as new as any node's */
    int64_t gap_from, gap_to;      /* job ids that were given out by records that are lost; 0: none */
    int64_t *removed;              /* ids of the gap whose jobs came back and were removed by retention */
    size_t removed_count, removed_cap;
    bool place_dirty;
};

/* state.c: finding, making, freeing */
struct job *core_find_job(const struct core *core, int64_t id);
struct node *core_find_node(const struct core *core, const char *name);
struct job *core_find_request(const struct core *core, const char *request_id);
struct generation *job_find_generation(const struct job *job, int64_t number);
struct generation *job_current(const struct job *job); /* the newest, NULL before the first */
struct spawn *job_find_spawn(const struct job *job, int64_t number);
bool generation_open(const struct generation *g); /* neither closed nor failed */
bool job_finished(const struct job *job);
bool job_keeps_state(const struct job *job); /* a train job that goes on from its snapshot when stopped */
bool node_gone(const struct node *node);     /* lost or left */
bool spawn_reachable(const struct spawn *s); /* not dead, and its node may still say so */
struct job *core_add_job(struct core *core, const struct job_record *record);
void core_remove_job(struct core *core, struct job *job);
struct node *core_add_node(struct core *core, const struct node_record *record);
void core_remove_node(struct core *core, struct node *node);
struct generation *job_add_generation(struct job *job, const struct generation_record *record);
struct spawn *job_add_spawn(struct core *core, struct job *job, const struct spawn_record *record);
void node_drop_spawn(struct node *node, const struct spawn *spawn);
void core_wake(struct core *core, int64_t at); /* a tick is wanted then, or earlier */
void text_set(char **text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* emit.c: changes and effects. A move checks its table, logs once and sets the state; nothing else assigns
 * one. */
void emit_job(struct core *core, const struct job *job, enum change_kind kind);
void emit_node(struct core *core, const struct node *node, enum change_kind kind);
void emit_generation(struct core *core, const struct generation *g, enum change_kind kind);
void emit_rank(struct core *core, const struct rank *rank, enum change_kind kind);
void emit_spawn(struct core *core, const struct spawn *s, enum change_kind kind);
void emit_snapshot(struct core *core, const struct snapshot_record *snapshot, enum change_kind kind);
void emit_progress(struct core *core, const struct job *job); /* r.progress alone */
void emit_forget(struct core *core, int64_t job);
void emit_number_removed(struct core *core, int64_t job);
void emit_clear(struct core *core, int64_t job);
void emit_meta(struct core *core, const char *key, int64_t value);
void emit_event(struct core *core, const struct job *job, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void move_job(struct core *core, struct job *job, enum job_state to, const char *why);
void move_node(struct core *core, struct node *node, enum node_state to, const char *why);
void move_generation(struct core *core, struct generation *g, enum generation_state to, const char *why);
void move_rank(struct core *core, struct rank *rank, enum rank_state to);
struct core_effect *emit_effect(struct core *core, enum core_effect_kind kind);
void emit_ok(struct core *core, uint64_t call);
void emit_fail(struct core *core, uint64_t call, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void emit_flush(struct core *core); /* wishes and job changes that this call caused */

/* load.c: one job and all below it; DATA_LOSS leaves parts of it behind */
MUST_CHECK enum err_code load_job_whole(struct core *core, const struct records *records, struct err *e);

/* card.c: what nodes keep for us */
/* How far a job has come; g: its current generation, or NULL. */
int64_t card_stage(const struct job_record *job, const struct generation_record *g);
int64_t card_progress(const struct job *job, const struct node *node);
void card_needed(struct node *node, int64_t job); /* a spawn of it may run there */
void card_heads(struct core *core, struct node *node, const struct core_hello *hello);
void card_offer(struct core *core, struct node *node); /* this revision of its wish carries what it lacks */
void card_kept(struct core *core, struct node *node, int64_t revision);
void card_removed(struct core *core,
                  int64_t job); /* retention removes the job: its cards do not bring it back */
void card_ended(struct core *core, const struct job *job); /* whoever keeps a card shall have the last one */
/* All of the job, or what a card has of it; for records_release. */
void card_records(const struct job *job, bool whole, struct records *out);
bool card_due(const struct core *core, const struct node *node, const struct node_card *card);

/* adopt.c: jobs that only the nodes know */
enum err_code adopt_check(const struct core *core, const struct core_hello *hello, struct err *e);
void adopt_cards(struct core *core, const struct core_hello *hello);
/* Nodes know more than we do: learn first, then act. numbered: no job of theirs has a number that is still to
 * be given out. */
void adopt_begin(struct core *core, int64_t seen_epoch, bool numbered);
void adopt_go_on(struct core *core); /* after a start amid of it */
bool adopt_learning(const struct core *core);
void adopt_tick(struct core *core);

/* jobs.c */
void jobs_submit(struct core *core, const struct core_event *event);
void jobs_cancel(struct core *core, const struct core_event *event);
void jobs_tick(struct core *core, struct job *job);
int64_t jobs_deadline(const struct core *core, const struct job *job);
void jobs_retain(struct core *core);
void jobs_started(struct core *core, struct job *job); /* the generation runs: so does the job */

/* nodes.c: sessions, liveness, leases, operators */
void nodes_hello(struct core *core, const struct core_event *event);
void nodes_heartbeat(struct core *core, const struct core_event *event);
void nodes_goodbye(struct core *core, const struct core_event *event);
void nodes_session_closed(struct core *core, const struct core_event *event);
void nodes_deaf(struct core *core, const struct core_event *event);
void nodes_tick(struct core *core, struct node *node);
int64_t nodes_deadline(const struct core *core, const struct node *node);
struct node *nodes_by_session(const struct core *core, uint64_t session);
void nodes_heard(struct core *core, struct node *node);
void nodes_pardon(struct core *core);
void nodes_settle(struct core *core, struct node *node); /* joining to alive or draining, when it may */

/* accounts.c */
const char *accounts_problem(const struct node *node, const struct job *job); /* NULL: it may run there */
void accounts_set(struct core *core, struct node *node, const struct core_account *list, size_t count);
void accounts_refused(struct core *core, struct node *node, const struct job *job, const char *why);

void nodes_rest(struct core *core, struct node *node); /* nothing is placed on it for a while */

/* operator.c */
void operator_drain(struct core *core, const struct core_event *event);
void operator_undrain(struct core *core, const struct core_event *event);
void operator_forget(struct core *core, const struct core_event *event);
/* No more work for the node; note: kept with it, or NULL. */
void operator_withdraw(struct core *core, struct node *node, const char *note, const char *why);

/* gpus.c: what becomes of the jobs by what a node says of its GPUs */
void gpus_hello(struct core *core, struct node *node, const struct core_hello *hello);
void gpus_heard(struct core *core, struct node *node, const struct core_gpu *gpus, size_t count);
void gpus_end_lost(struct core *core, struct node *node);

/* inventory.c: GPUs as structs and as the record's JSON */
struct core_gpu *inventory_find(const struct node *node, const char *uuid); /* or NULL */
int inventory_holders(const struct node *node, const char *uuid);           /* workers that have it */
void inventory_set(struct node *node, const struct core_gpu *gpus, size_t count);
bool inventory_update(struct node *node, const struct core_gpu *gpus,
                      size_t count); /* true: health changed */
void inventory_free(struct node *node);
char *inventory_print(const struct node *node);
void inventory_parse(struct node *node); /* from r.gpus */

/* facts.c */
void facts_apply(struct core *core, const struct core_event *event);

/* reports.c */
void reports_apply(struct core *core, const struct core_event *event);
void reports_close_fault(struct core *core, struct job *job); /* says what the open fault cost */

/* progress.c: what status shows of a job, as text in its record */
void progress_keep(struct job *job); /* r.progress from progress; the caller emits the job */
void progress_load(struct job *job); /* and back */
void progress_news(struct core *core, struct job *job);
void progress_tick(struct core *core);

/* stall.c: who stands still */
void stall_apply(struct core *core, const struct core_event *event);
void stall_forget(struct node *node); /* its session is over: nothing is known of its workers */
void stall_tick(struct core *core, struct job *job);
/* Told to kill, and not dead: those stuck in the kernel are given up, their nodes drained. */
void stall_release(struct core *core, struct generation *g);
int64_t stall_deadline(const struct job *job); /* INT64_MAX: none */
void stall_text(const struct core *core, const struct job *job, int64_t now_ms, char *out, size_t size);

/* place.c */
struct place_choice {
    struct node *node;
    int procs, gpus_each; /* gpus_each 0: CPU slots */
    int order, available; /* for sorting */
};
void place_run(struct core *core);

/* resize.c: other nodes for a job that runs */
void resize_job(struct core *core, const struct core_event *event);
void resize_restart(struct core *core, const struct core_event *event);
bool resize_wants(const struct core *core, const struct job *job); /* it would take more nodes */
/* `count` nodes could join. True: it is time to stop for them (resize_grow). */
bool resize_offer(struct core *core, struct job *job, const struct place_choice *more, size_t count);
void resize_grow(struct core *core, struct job *job);

/* form.c: a generation is born */
void form_generation(struct core *core, struct job *job, const struct place_choice *chosen, size_t count);

/* recover.c: how generations end */
struct cause {
    struct spawn *spawn; /* who failed first, NULL: nobody in particular */
    bool charged, fatal; /* fatal: no restart helps */
    int exit_code;       /* of the job, should this end it */
    const char *text;
};
void recover_fail(struct core *core, struct generation *g, const struct cause *cause);
/* It must not start: the next one forms when the job has found what it waits for. Not charged. */
void recover_hold(struct core *core, struct generation *g, const char *why);
/* Lets it finish its step and snapshot, then the next one forms. Not charged. */
void recover_drain(struct core *core, struct generation *g, const char *why);
void recover_stop(struct core *core, struct job *job, enum job_state goal, int exit_code, bool kill,
                  const char *why);
void recover_settle(struct core *core, struct job *job); /* goes on when all that it waited for is dead */
void recover_spawn_dead(struct core *core, struct spawn *s);
void recover_stop_generation(struct core *core, struct generation *g, enum core_stop stop);

/* exits.c: fact NULL: its node knows nothing of it */
void exits_apply(struct core *core, struct spawn *s, const struct core_fact *fact);

/* rendezvous.c */
void rendezvous_join(struct core *core, const struct core_event *event);
void rendezvous_bootstrap(struct core *core, const struct core_event *event);
void rendezvous_watch(struct core *core, const struct core_event *event);
void rendezvous_gone(struct core *core, const struct core_event *event);
void rendezvous_tick(struct core *core, struct generation *g);
int64_t rendezvous_deadline(const struct generation *g);
void rendezvous_closed(struct core *core, struct generation *g,
                       const char *why);                                   /* waiters and watchers learn it */
void rendezvous_left(struct core *core, struct spawn *s, const char *why); /* a member is gone */
int rendezvous_watching(const struct core *core, const struct generation *g); /* ranks that reach us */
void rendezvous_stopping(struct core *core, struct generation *g); /* watchers learn that they shall stop */
void rendezvous_drop(struct core *core, const struct job *job);    /* forgets watchers of a job that goes */
void rendezvous_renew(struct core *core,
                      const struct job *job); /* ... of one that is built anew: they call again */

/* lost.c: a job whose committed snapshots cannot be found waits for them. */
/* All have joined, and the source is chosen. True: the generation must not start, and was ended. */
bool lost_check(struct core *core, struct generation *g);
bool lost_waits(const struct job *job);
void lost_looked(struct core *core, const struct core_event *event);
void lost_tick(struct core *core, struct job *job);
int64_t lost_deadline(const struct job *job); /* INT64_MAX: none */
void lost_node_back(struct core *core);       /* a node can be asked again: now */
void lost_try(struct job *job);               /* the user's word: it goes on at once, where it may */
bool lost_has_place(const struct job *job, const struct place_choice *chosen, size_t count);
bool lost_is_found(const struct job *job, const struct node *node);
/* Nodes have its snapshots, and it cannot be placed on any of them now. */
void lost_say_place(struct core *core, struct job *job, struct buf *text);
void lost_release(struct job *job);

/* faults.c: snapshots that fail */
void faults_snapshot_failed(struct core *core, const struct core_event *event);
void faults_committed(struct core *core, const struct spawn *s, int64_t step);
void faults_stepped(struct core *core, struct job *job); /* it gets on: is it saved, too? */
void faults_formed(struct job *job);                     /* those of nodes that it has left are over */
void faults_notes(const struct core *core, const struct job *job, struct core_job_status *out);
void faults_release(struct job *job);

/* snapshots.c */
void snapshots_commit(struct core *core, const struct core_event *event);
void snapshots_choose(struct core *core, struct generation *g);        /* fills the source fields */
const struct snapshot_record *snapshots_newest(const struct job *job); /* that counts; NULL: none */
/* What its next generation is to start from: of a job that it continues, where it has none of its own. */
const struct snapshot_record *snapshots_expected(const struct core *core, const struct job *job);
bool snapshots_has_node(const struct snapshot_record *snapshot, const char *node);
/* The generation's source is older than that one. */
bool snapshots_source_older(const struct generation *g, const struct snapshot_record *expected);

#endif
