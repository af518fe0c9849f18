#ifndef DDP_TESTS_SIM_SIM_H
#define DDP_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/coordinator/core/core.h"

/* A whole cluster in one process: the real core on a fake clock and a fake store, surrounded by fake agents,
 * supervisors, workers and clients, with random faults. The seed determines the whole run. Times are in
 * milliseconds. `now` is the true time, and the boot clock of every machine; the wall clock jumps. Each rule
 * is checked where it could be broken:
 *
 *   rules.c     States change as their tables allow. A job has no more and no fewer nodes than it allows. Success
 *               means that all ranks succeeded. A job with snapshots begins at step 0 only when a user has said
 *               so. No generation follows an error of the program, or with `restart_on: any` the same error
 *               twice. A job that a user has stopped does not go on when a card of it is adopted.
 *   durable.c   A job has at most one open generation, and a closed generation commits nothing. No job is lost.
 *               No snapshot is older than the state that its generation began with.
 *   invariants.c  Restarts are counted. No slot is held twice. No worker is a member of two open generations,
 *               or goes on with a lost GPU. Survivors of a generation hold their slots only while their job is
 *               about to go on.
 *   machine.c   A slot never has two living processes. A command job never has two living generations. No
 *               worker is started twice, and none of restored records is started. No exit record is lost.
 *   worker.c    All members of a generation get the same answer to Join. A generation goes on from the newest
 *               state that one of its members has in memory. No node of a generation lacks its parts of the
 *               snapshot that the generation starts from; a job waits for its snapshots only while it has no
 *               whole one; no committed part is removed.
 *   stuck.c     A job that stands still ends the rank for which the others wait, not one that waits.
 *   host.c      Any committed state can be run ahead, to say when jobs start.
 *   main.c      After the faults every job ends, and nothing is left running. */

#define MAX_MACHINES 50
#define MAX_JOBS 30

struct sim;
struct item;
typedef void (*item_fn)(struct sim *sim, struct item *item);

/* A planned event: run is called when `now` has reached `at`. */
struct item {
    int64_t at;
    uint64_t order;
    item_fn run;
    int64_t a, b, c, d;
    void *ptr; /* freed after run, unless run has taken it */
};

/* ------------------------------------------------------------------ what is durable: durable.c */
struct durable {
    struct records r;
    size_t job_cap, node_cap, generation_cap, rank_cap, spawn_cap, snapshot_cap;
    int64_t epoch, commits;
    int64_t adopting; /* the job that this list of changes inserts from a card; 0: none */
    /* The jobs that this list of changes replaces by what a card says, and that a user had stopped. */
    int64_t stopped[MAX_JOBS];
    size_t stopped_count;
};
void durable_apply(struct sim *sim, const struct change *changes, size_t count);
void durable_release(struct durable *d);
void durable_copy(struct durable *to, const struct durable *from);
struct job_record *durable_job(const struct durable *d, int64_t id);
struct spawn_record *durable_spawn(const struct durable *d, int64_t job, int64_t spawn);
struct generation_record *durable_generation(const struct durable *d, int64_t job, int64_t number);
/* handover.c, after these changes were applied. */
void handover_check(struct sim *sim, const struct change *changes, size_t count);
/* Returns the newest generation that the spawn is a member of, or NULL. */
const struct generation_record *durable_generation_of(const struct durable *d, const struct spawn_record *s);
bool durable_open(enum generation_state state); /* the generation has not ended */
/* A GPU's state in the node's last message. */
enum gpu_state { GPU_WELL, GPU_SICK, GPU_LOST };
enum gpu_state durable_gpu(const struct durable *d, const char *node, const char *uuid);

/* ------------------------------------------------------------------ what a change must keep: rules.c */
void rules_check_move(struct sim *sim, const struct sm *sm, const struct change *c, int state);
void rules_check_success(struct sim *sim, const struct job_record *job);
void rules_check_loss(struct sim *sim, const char *node);
void rules_check_generation(struct sim *sim,
                            const struct generation_record *fresh); /* not of an adopted job */
void rules_check_source(struct sim *sim, const struct generation_record *g);
void rules_check_spawn(struct sim *sim, const struct spawn_record *s); /* a new one, not of an adopted job */
/* After all changes of a commit. */
void rules_check_stops(struct sim *sim);
void rules_check_told(struct sim *sim, const struct change *changes, size_t count);

/* ------------------------------------------------------------------ what must hold: invariants.c */
void invariants_check_slots(struct sim *sim);
void invariants_check_lost_gpus(struct sim *sim);
void invariants_check_memberships(struct sim *sim);
void invariants_check_jobs(struct sim *sim); /* and their survivors */

/* ------------------------------------------------------------------ requests and replies */
struct caller {
    int machine;        /* the worker's machine; -1: the caller is client number `job` */
    int64_t job, spawn; /* the worker */
    int64_t attempt;    /* replies to older attempts are stale */
};
#define SIM_OFFERS 8
struct sim_offer {
    struct core_offer offer; /* its digest and elsewhere are set on arrival */
    char digest[64];
    uint64_t elsewhere; /* machines, as bits */
};
struct request {
    enum core_event_kind kind;
    struct caller from;
    int64_t job, generation, step, continues;
    int rank;
    bool flag; /* kill, resume */
    uint8_t token[32], bytes[128];
    size_t size;
    bool stays;        /* of a worker: it can go on in the next generation */
    int64_t ready;     /* of a watch: the hand-over for which it waits; 0: none */
    bool broken;       /* of a watch: its group is broken */
    int64_t arrived;   /* of a watch: the exchange at which it has arrived; 0: none */
    bool holds;        /* it waits there */
    int64_t live_step; /* of a join: of the state that it has in memory; 0: none */
    int parts;         /* of a commit */
    char text[1600];   /* by kind: a job file, a node's name or a digest */
    char id[32];       /* request id */
    struct sim_offer *offers;
    size_t offer_count;
};
struct reply {
    struct caller to;
    enum core_event_kind kind; /* the request's */
    struct err err;
    int64_t job, generation, step;
    bool existed, member, wait, stop, pending, late;
    int64_t hold;
    int64_t handover; /* of a watch: the one that members are to wait for; 0: none */
    bool live;        /* the source has the state in memory */
    int64_t order;    /* of a watch: of this word among all; 0: another call */
    int rank, source_rank, world_size;
    int64_t source_generation;
    enum core_join_state state;
    uint8_t answer[DIGEST_BYTES]; /* digest of key, bootstrap id, peers and source */
};

/* ------------------------------------------------------------------ the coordinator's process: host.c */
struct pending {
    uint64_t handle;
    struct caller from;
    enum core_event_kind kind;
    bool watch;
};
struct host {
    struct core *core;
    struct core_out out;
    bool flush_planned;
    int64_t life, tick_at; /* life grows at each start; items of an earlier life are ignored */
    /* Messages are not received until deaf_until, and connections are not accepted until shut_until. The core
     * has been told of this time up to deaf_told and shut_told. */
    int64_t deaf_until, deaf_told, shut_until, shut_told;
    int crash_next; /* 0: no; 1: before the next commit, 2: after it, 3: during its effects */
    uint64_t next_handle;
    int64_t words;   /* that it has told watchers, in all its lives */
    int64_t commits; /* in all its lives */
    struct pending *pending;
    size_t pending_count, pending_cap;
};
void host_start(struct sim *sim);
void host_crash(struct sim *sim);
/* Sends the request over the network, which may delay, lose or repeat it. */
void host_request(struct sim *sim, const struct request *request);
void host_up(struct sim *sim, struct core_event *event); /* an agent's message has arrived */
bool host_deaf(const struct sim *sim);
bool host_shut(const struct sim *sim);
void host_deafen(struct sim *sim, int64_t ms);
void host_shut_door(struct sim *sim, int64_t ms);

/* ------------------------------------------------------------------ machine.c, agent.c */
enum proc_state { PROC_STARTING, PROC_RUNNING, PROC_EXITED };
/* A spawn as its supervisor knows it. It survives the agent; its record on disk survives a power cut, too. */
struct proc {
    int64_t job, spawn, generation;
    int rank, local_rank, world_size, cpu_slot;
    uint64_t gpus; /* a bit for each GPU */
    uint8_t token[32];
    bool native;
    int64_t lease_ms, grace_ms, lease_from;
    enum proc_state state;
    enum core_stop stop;
    int code, signal;
    const char *tail; /* its last lines on stderr: a literal, or NULL */
    bool lost, not_started, port_busy, lease_expired, node_trouble, no_account;
    int64_t started, ended;
    /* the worker itself */
    int64_t attempt, watch_attempt, watch_arrived, step, next_snapshot;
    int64_t heard; /* the order of the last word of its watch */
    bool ready, leaving;
    bool other_data; /* its machine has other data than the rest, which shows when the ranks have joined */
    bool stays;      /* it goes on in the next generation when its own has failed */
    bool live;       /* it has the state of its step in memory, from this generation or an earlier one */
    bool held;       /* divided state: it holds that of all ranks, from a hand-over until its next step */
    bool waits;      /* its generation is over, and it waits for the next */
    bool severed;    /* the connections to its peers are lost */
    bool broken;     /* it has noticed that */
    bool waits_for_peers; /* it is told to wait for members that have not noticed it */
    int64_t formed;       /* how often its generation was ready */
    /* Hand-overs: the one that it has heard of, the last one for which it has waited, and whether it waits now. */
    int64_t handover, handover_met;
    bool handover_waits;
    /* With a quorum: exchanges that it has made, steps of its round, the exchange that it stands before (0: none), whether it holds
     * there, the exchange from which on it is to hold (0: none), and whether a round has closed without it. */
    int64_t exchanges, round_steps, arrived, hold_from;
    bool holds, late;
    bool disowned; /* an operator has wrongly declared it dead */
    bool hung;     /* its GPU is lost: it waits until it is killed */
    /* stuck.c. 'R': it computes for ever, 'T': it is stopped, 'D': it waits in the kernel; 0: none of these.
     * stuck_next: the same, for its next step. */
    char stuck, stuck_next;
    int64_t stuck_since, worked_until,
        wrote_at; /* until when it has computed, and when it wrote or reported last */
    int64_t told_idle,
        told_silent; /* since when it is idle or silent, as its agent said last; 0: it is not */
    int64_t commit_step,
        failed_step; /* with parts: the snapshot that it commits, or could not write; 0: none */
};
struct wished {
    int64_t job, spawn, generation, lease_ms, grace_ms;
    int rank, local_rank, world_size, cpu_slot;
    uint64_t gpus;
    uint8_t token[32];
    bool native, keep_only;
    enum core_stop stop;
};
struct card { /* `content` is its index in sim.contents */
    int64_t job, progress;
    bool ended, drop;
    size_t content;
};
struct wish_copy {
    int64_t epoch, revision;
    int restores; /* how many restores there had been when it was made */
    size_t card_count;
    struct card cards[MAX_JOBS];
    size_t count;
    struct wished spawns[];
};
struct copy { /* a snapshot on a machine's disk */
    int64_t job, generation, step;
    bool committed;
    int parts;      /* ranks that write one each; 0: the ranks do not differ */
    uint64_t homes; /* machines that wrote parts, as bits */
    bool lost;      /* a part is lost or damaged */
};
/* The snapshots that a worker offered in the last Join that the coordinator took for the forming generation. It stays
 * when the worker has ended: others start from what was chosen then. */
struct told {
    int machine;
    int64_t job, spawn, generation;
    struct {
        int64_t generation, step;
    } offers[SIM_OFFERS];
    size_t count;
};
struct session {
    int machine;
    uint64_t handle; /* by which the host knows it */
    bool broken;
    int64_t life;                       /* the host's life when it accepted the session */
    int64_t hello_sent, up_at, down_at; /* up_at, down_at: no later message may arrive before this time */
    int unread;                         /* messages that have arrived while the host was deaf */
};
struct machine {
    int index;
    int64_t account_at; /* until this time, users have no account here */
    bool refused;       /* a job was refused because of that; heartbeats report it */
    int64_t data_at;    /* until this time, data of jobs is missing here */
    bool activity_due;  /* the agent has not said all that it knows of quiet workers */
    char name[16], instance[32];
    int cpu_slots, gpu_count, gpu_slots;
    uint64_t sick, lost, gone; /* a bit for each GPU; gone: lost, and no longer listed either */
    const char *nccl;
    bool power, agent;
    int64_t cut_until, life; /* life: grows at each start of the agent */
    int64_t unmounted_until; /* until this time, its snapshots cannot be read */
    int session;             /* its index; -1: none */
    bool welcomed, drained;
    int64_t last_ack_sent, heard, sequence, acked, sent[64];
    int64_t asked;          /* when the first heartbeat was sent that is not acknowledged yet */
    int64_t beat_ms, beats; /* interval of heartbeats; number planned, of which only the newest is sent */
    int64_t turned_away;    /* when its last attempt to connect failed */
    struct wish_copy *wish; /* the newest, on disk */
    struct card cards[MAX_JOBS];
    size_t card_count;
    struct proc **procs;
    size_t proc_count, proc_cap;
    struct copy *copies;
    size_t copy_count, copy_cap;
};
bool sim_gpus(const struct sim *sim); /* returns whether most machines of this run have GPUs */
void machine_init(struct sim *sim, int index);
void machine_release(struct machine *m);
void machine_note_restored(struct sim *sim); /* the records are a backup's */
void machine_power_off(struct sim *sim, struct machine *m);
void machine_power_on(struct sim *sim, struct machine *m, bool wiped);
void machine_apply(struct sim *sim, struct machine *m); /* makes the processes match the wish on disk */
void machine_lease_renewed(struct sim *sim, struct machine *m);
void machine_lose_gpu(struct sim *sim, struct machine *m, int gpu);
void supervisor_kill(struct sim *sim, struct machine *m, int64_t job);
void proc_exit(struct sim *sim, struct machine *m, struct proc *p, int code, int signal);
struct proc *machine_proc(const struct machine *m, int64_t job, int64_t spawn);
void agent_start(struct sim *sim, struct machine *m);
void agent_stop(struct sim *sim, struct machine *m);
void agent_break(struct sim *sim, struct machine *m); /* breaks the stream */
void agent_facts(struct sim *sim, struct machine *m);
void agent_looked(struct sim *sim, struct machine *m, int64_t job);
void agent_report(struct sim *sim, struct machine *m, const struct proc *p);
void agent_goodbye(struct sim *sim, struct machine *m);
void agent_activity(struct sim *sim, struct machine *m, const struct core_activity *list, size_t count);
const struct card *machine_card(const struct machine *m, int64_t job);
void agent_down(struct sim *sim, const struct core_effect *effect); /* sends a message of the host */

/* ------------------------------------------------------------------ workers, clients, faults */
struct machine *worker_machine(struct sim *sim, const struct item *item, struct proc **p);
struct item *worker_plan(struct sim *sim, const struct machine *m, const struct proc *p, int64_t after,
                         item_fn run);
void worker_plan_step(struct sim *sim, const struct machine *m, const struct proc *p);
void worker_send_watch(struct sim *sim, struct machine *m, struct proc *p);
void worker_lose_group(struct sim *sim, struct machine *m, struct proc *p); /* a collective of it fails */
/* What is due after a step. Returns true if the worker ends. */
bool worker_serve_step(struct sim *sim, struct machine *m, struct proc *p);
/* quorum.c. A trainer of a job with a quorum has reached the end of its round: true if it stands at its exchange now. */
bool quorum_round_ends(struct sim *sim, struct machine *m, struct proc *p);
void quorum_heard(struct sim *sim, struct machine *m, struct proc *p, int64_t hold_from);
void quorum_is_late(struct sim *sim, struct machine *m, struct proc *p, bool stands);
void quorum_joined(const struct sim *sim, struct proc *p, bool live);
/* Whether the generation's end is that of a round: it has closed without a member, or one has come back. Checks what holds then.
 * changes: the commit that ends it. */
bool quorum_check(struct sim *sim, const struct change *changes, size_t count, const struct change *end);
bool handover_is_member(const struct sim *sim, int64_t job, int64_t generation, int64_t spawn);
const struct proc *handover_find_proc(const struct sim *sim, int64_t job, int64_t spawn);
void worker_start(struct sim *sim, struct machine *m, struct proc *p);
void worker_stop(struct sim *sim, struct machine *m, struct proc *p, enum core_stop stop);
/* Returns whether the machine has a snapshot that the job can continue from. */
bool worker_has_copy(const struct sim *sim, const struct machine *m, int64_t job);
void worker_reply(struct sim *sim, const struct reply *reply);
/* parts.c */
/* A snapshot that was written in parts; NULL: none of this step. */
const struct copy *parts_find(const struct sim *sim, int64_t job, int64_t generation, int64_t step);
/* The coordinator keeps what the worker offers in this Join. */
void parts_told(struct sim *sim, const struct request *join);
/* Checks that no node lacks its parts of the snapshot from which the process is to start: the trainer could not load it. */
void parts_check_start(struct sim *sim, const struct proc *p, const struct reply *reply);
/* A job does not wait for snapshots while its generation has a whole one. */
void parts_check_wait(struct sim *sim, const struct change *change);

struct sim_job {
    char id[32];
    char file[1600];
    bool native, doomed, no_snapshots;
    int error;        /* the exit code with which a doomed job fails */
    bool restart_any; /* restart_on: any */
    bool varied;      /* a doomed job says something else each time */
    bool stays;       /* its workers can go on in the next generation */
    bool divided;     /* a lost rank takes its part of the state with it, so nobody has the state any more */
    bool resized_often;     /* all of them can, and it runs longer, so that it is handed over now and then */
    int64_t survived_since; /* since when survivors wait without a reason; 0: they do not */
    bool parts;             /* its ranks differ, and each node has its own part of a snapshot */
    int64_t submit_at, duration, target, every, acked, attempt;
    int64_t continues;                  /* index into jobs; -1: none */
    int64_t nodes_min, nodes_max, most; /* as in its file; most: how many the cluster could give it */
    int64_t gpus_each;                  /* as in its file; 0: it runs on CPUs */
    int64_t shards;                     /* of `reproducible: world`; 0: not such a job */
    int64_t quorum;                     /* as in its file; 0: none */
    int64_t stall_ms;                   /* its stall_timeout; 0: none */
    int64_t resize_to;                  /* the number of nodes for which it was stopped; 0: none */
    int64_t lost_since;                 /* when it began to wait for its snapshots; 0: it does not wait */
};
/* group.c */
void group_sever(struct sim *sim, const struct proc *of); /* of: NULL does nothing */
bool group_is_whole(const struct sim *sim,
                    const struct proc *me); /* whether a collective of the process's group can end */
void group_check_step(struct sim *sim, const struct proc *me);
void group_check_broken(struct sim *sim, const struct change *changes, size_t count);
/* stuck.c */
bool stuck_runs(const struct sim *sim); /* whether ranks get stuck in this run */
void stuck_choose_limit(struct sim *sim, struct sim_job *job);
void stuck_start(struct sim *sim);
void stuck_watch(struct sim *sim,
                 const struct machine *m);          /* the machine's agent looks at its workers from now on */
bool stuck_begins(struct sim *sim, struct proc *p); /* the process gets stuck in this step */
void stuck_check(struct sim *sim, const struct change *changes, size_t count);
void client_start(struct sim *sim);
void client_reply(struct sim *sim, const struct reply *reply);
struct sim_job *client_job(const struct sim *sim, int64_t job); /* job: the coordinator's id */
void client_operate(struct sim *sim, enum core_event_kind kind, const char *node, int64_t job, bool flag);
void chaos_start(struct sim *sim);
void chaos_end(struct sim *sim);
/* Returns whether, after a restore, no record and no node knows the job. */
bool restore_lost(const struct sim *sim, int64_t job);

struct card_content {
    int64_t job, event; /* the wishes of one event share a content, which has the records of all ranks */
    struct records records;
};

struct sim {
    uint64_t seed, random, orders;
    int64_t now, wall_offset, faults_end, events, resizes;
    bool faults, failed, verbose;
    char why[512];
    double loss; /* the probability that a message is lost, while there are faults */
    int64_t delay;
    struct item **heap;
    size_t heap_count, heap_cap;
    struct durable durable;
    struct host host;
    struct machine machines[MAX_MACHINES];
    int machine_count, job_count;
    struct sim_job jobs[MAX_JOBS];
    struct session *sessions;
    size_t session_count, session_cap;
    struct { /* the answer that the first member of each generation got */
        int64_t job, generation;
        uint8_t answer[DIGEST_BYTES];
    } * answers;
    size_t answer_count, answer_cap;
    struct { /* which request made which job */
        int64_t job;
        int index;
    } * requests;
    size_t request_count, request_cap;
    struct sim_start { /* a worker that a machine has started, or that this restore brought */
        int64_t job, spawn;
        uint8_t token[32];
        int restores; /* how many restores there had been; 0: it was started */
    } * starts;
    size_t start_count, start_cap;
    struct copy *parted; /* all snapshots with parts that were begun */
    size_t parted_count, parted_cap;
    struct told *told;
    size_t told_count, told_cap;
    int64_t lives;         /* generations that went on from memory */
    int64_t handovers;     /* of them, those that began without a failure */
    int64_t reconnected;   /* generations that ended because connections were lost, but no rank */
    int64_t rounds_closed; /* those that began because a round closed without a member, or one came back */
    int64_t thinned;       /* old generations that were removed */
    int64_t stuck;         /* ranks that got stuck */
    int64_t without_data;  /* ranks that found no data on their machine */
    int64_t parts_lost, gone_back; /* faults; starts from an older snapshot for a lost part */
    struct card_content *contents; /* of cards */
    size_t content_count, content_cap;
    struct durable backup; /* its `commits` is 0 before the first backup */
    int restores;
    int64_t restored_at, adopted;
};

/* world.c */
uint64_t sim_random(struct sim *sim);
int64_t sim_range(struct sim *sim, int64_t low, int64_t high); /* both included */
bool sim_chance(struct sim *sim, double p);
bool sim_lost(struct sim *sim); /* decides whether the next message is lost */
int64_t sim_delay(struct sim *sim);
struct item *sim_plan(struct sim *sim, int64_t at, item_fn run);
bool sim_step(struct sim *sim); /* runs the next item; returns false if there is none */
struct core_now sim_clock(const struct sim *sim);
void sim_fail(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_say(const struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_free(struct sim *sim);

#endif
