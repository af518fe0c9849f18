#ifndef DDP_DAEMON_COORDINATOR_CORE_EVENT_H
#define DDP_DAEMON_COORDINATOR_CORE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crypto/id.h"
#include "base/worker/metric.h"
#include "base/worker/spawn_fact.h"
#include "base/worker/usage.h"
#include "store/record.h"

/* What happens to the core. Calls and sessions are named by handles of the owner (core.h); all pointers are
 * borrowed for the call. */

struct core;

struct core_gpu {
    char *uuid, *name, *problem, *driver; /* NULL: unknown */
    int64_t memory_bytes, memory_used;
    int index, temperature, power_watts;
    double utilisation;
    bool unmeasured; /* utilisation is not known */
    bool healthy;
    bool lost; /* fell off the bus: its workers cannot go on */
};

/* The head of a card that a node keeps: the job, and how far the job had come at that time (card.c). */
struct core_card_head {
    int64_t job, progress;
};

struct core_hello {
    const char *node, *instance, *session_id, *version, *cluster_id, *address, *log_dir;
    /* Version that its trainer uses: "2.28.9"; "none": the trainer cannot use GPUs; NULL, "": unknown. */
    const char *nccl;
    const char *plugin;      /* the GPU libraries of its trainer: "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0" */
    int64_t epoch, revision; /* epoch and revision of the wish that the agent keeps */
    int cpu_slots, cores, port_first, port_last;
    int procs; /* workers of each job on this node; 0: as the job says */
    /* Of a host of `ddpctl run`: the node rank that it asks for, plus 1 (0: any), and its place in the order
     * of joining, from 1 on (0: no such host). */
    int seat, turn;
    int64_t memory_bytes;
    const struct core_gpu *gpus;
    size_t gpu_count;
    int gpu_slots; /* workers that share a GPU; 0 means 1 */
    bool keeps_cards;
    const struct core_card_head *heads; /* heads of all cards that the node keeps */
    size_t head_count;
    const struct records *cards; /* the cards that core_wants_card asked for, one job each */
    size_t card_count;
};

#define CORE_OFFERS_MOST 64 /* of one Join */
struct core_offer {         /* a snapshot that a joining process could load */
    int64_t job, generation, step;
    const char *digest, *path;
    bool committed;         /* it has a COMMITTED.json, which the process has checked */
    int parts;              /* that ranks wrote; 0: none */
    char *const *elsewhere; /* nodes that wrote the parts that this process does not see; NULL: none */
    bool needs_all;         /* it cannot be loaded without all of its parts */
};

/* A quiet worker: milliseconds without CPU time, and without output; -1: it is not idle, or not silent. */
struct core_activity {
    int64_t job, spawn, idle_ms, silent_ms;
    char state;            /* 'T' stopped, 'D' stuck in the kernel, 0: neither */
    const char *waits_in;  /* of an idle one: the system call in which it waits; NULL, "": not known */
    const char *waits_for; /* what that call's descriptor refers to; NULL, "": not known */
    const char *stack;     /* of an idle one: its kernel stack, "pipe_read, vfs_read"; NULL, "": not known */
    int cpu_permille;      /* of a silent one: the CPU time that it used of late, of one core */
    int own_wait; /* how likely it waits for something other than its peers: base/worker/process_wait.h */
};

struct core_spawn_usage { /* what a worker and its GPUs use */
    int64_t job, spawn;
    struct usage usage;
};

struct core_account { /* a user whose jobs cannot run on a node, and why */
    const char *user, *why;
};

enum core_event_kind {
    /* from users; each has a call */
    CORE_SUBMIT,
    CORE_CANCEL,
    CORE_RESIZE,
    CORE_RESTART,
    CORE_TUNE,
    CORE_PRIORITY,
    CORE_HOLD, /* and release */
    CORE_DELETE,
    CORE_DRAIN,
    CORE_UNDRAIN,
    CORE_FORGET,
    /* From agents; each has a session. All but HELLO are ignored if the session is not the node's newest. */
    CORE_HELLO,
    CORE_HEARTBEAT,
    CORE_FACTS,
    CORE_REPORTS,
    CORE_ACTIVITY,
    CORE_USAGE,
    CORE_LOOKED, /* the answer to EFFECT_LOOK */
    CORE_GOODBYE,
    CORE_SESSION_CLOSED,
    /* From the core's owner: it has received no messages for some time until now. No call, no session. */
    CORE_DEAF,
    /* From trainers; each has a call and the member that its token belongs to (core_find_token). */
    CORE_JOIN,
    CORE_PUT_BOOTSTRAP,
    CORE_WATCH,
    CORE_COMMIT_SNAPSHOT,
    CORE_SNAPSHOT_FAILED,
    CORE_CALL_GONE, /* the peer of this call went away; with the member if it was a worker's call */
    CORE_EVENT_KINDS
};

struct core_event {
    enum core_event_kind kind;
    uint64_t call;    /* the call that gets the reply */
    uint64_t session; /* an agent's stream */
    const char *who;  /* the name of the user whose call it is; NULL or empty: unknown */
    struct {
        int64_t job, spawn;
    } member; /* a worker's identity, by its token; the claims of the request are checked against it */
    union {
        struct {
            const char *request_id, *job_file, *user;
            char *const *env;   /* NULL-terminated or NULL */
            int64_t continues;  /* 0: none; the new job starts from that job's newest committed snapshot */
            bool now;           /* refuse a job that cannot start at once */
            bool resume;        /* continue whatever job's snapshots the directory holds */
            bool for_everybody; /* the role operate: jobs of other users count as its own */
            uint8_t digest[DIGEST_BYTES]; /* digest of the whole request except the user */
        } submit;
        struct {
            int64_t job;
            bool kill;
            const char *why; /* NULL or empty: `who` asked for it */
            int signal;      /* first signal for a command's processes; 0: SIGTERM */
            int exit_code;   /* not 0: the job fails with this code */
        } cancel;
        struct {
            int64_t job, nodes_min, nodes_max; /* nodes: resize only */
            bool from_scratch;                 /* restart only: the snapshots up to now no longer count */
        } resize;
        struct {
            int64_t job;
            char *const *assignments; /* "optimizer.lr=1e-4", NULL-terminated */
        } tune;
        struct {
            int64_t job,
                priority; /* priority: the new one, or with `relative` what is added to the present one */
            bool relative;
            bool hold;    /* CORE_HOLD: false releases the job */
            bool checked; /* priority: it is changed only from `seen` */
            int64_t seen;
            char *const *
                nodes; /* delete: where the job had processes, since memory lacks old generations; NULL: none */
        } order;       /* priority, hold, delete */
        struct {
            const char *name, *reason;
        } node; /* drain, undrain, forget */
        struct core_hello hello;
        struct {
            int64_t sequence;
            double load;
            int64_t memory_free;
            const struct core_gpu *gpus; /* the GPUs that have changed; count may be 0 */
            size_t gpu_count;
            const struct core_account *accounts; /* all entries of the node */
            size_t account_count;
        } heartbeat;
        struct {
            int64_t epoch, revision; /* epoch and revision of the wish that the facts answer */
            const struct spawn_fact *facts;
            size_t count;
        } facts;
        struct {
            const struct metric_report *reports; /* with their lines read */
            size_t count;
        } reports;
        struct {
            const struct core_activity *spawns; /* all quiet workers of the node */
            size_t count;
        } activity;
        struct {
            const struct core_spawn_usage *spawns; /* of some workers of the node */
            size_t count;
        } usage;
        struct {
            int64_t generation;
            int rank;
            const uint8_t *address;
            size_t address_size;
            const struct core_offer *offers;
            size_t offer_count;
            char *const *unusable; /* snapshots that the rank cannot use, with reasons; NULL: none */
            size_t unusable_count;
            int64_t live_step;              /* step of the state that it has in memory; 0: none */
            bool stays;                     /* its process can go on in the next generation */
            const char *version, *computes; /* of its program, and of its device; NULL: not given */
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
            int64_t generation;  /* generation that the process belongs to */
            int64_t failed_step; /* of the last snapshot that it could not write its part of; 0: none */
            int64_t revision;    /* of rank 0: of the job file that all ranks use */
            int64_t step;        /* after which they began to use it; 0: since the generation began */
            bool stays;          /* as in join */
            int64_t ready;       /* the hand-over for which it waits between two steps; 0: none */
            int64_t arrived;     /* with sync.quorum: the exchange at which it has arrived; 0: none yet */
            bool holds;          /* it waits there */
            int64_t gathered; /* bytes of state that it has gathered for a hand-over; 0: it does not gather */
            bool broken;      /* the group of its generation no longer works */
            bool
                record; /* false: the disk is full, so the revision in use and a broken group are not recorded */
        } watch;
        struct {
            int64_t generation, step, bytes;
            int parts; /* ranks that write one each, and commit; 0: the caller's files are all */
            const char *digest, *path; /* with parts: empty if the caller wrote its part alone */
            const char *why;           /* SNAPSHOT_FAILED: path and error */
            int64_t waits_ms; /* SNAPSHOT_FAILED: the rank tries again for so long; 0: it has given up */
        } snapshot;
        struct {
            int64_t job;
            bool found; /* the node has one of core_snapshot_paths */
        } looked;
    };
};

#endif
