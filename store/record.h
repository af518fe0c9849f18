#ifndef DDP_STORE_RECORD_H
#define DDP_STORE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crypto/id.h"
#include "base/sm.h"

/* What is durable about a cluster, as plain structs. The coordinator's core holds all of it in memory,
 * decides, and hands a list of struct change to the store, which applies the list in one transaction; after a
 * restart the core is rebuilt from what store_load returns. Nothing here knows SQL, the wire or a clock:
 * times are wall milliseconds that the core was given. Texts and arrays are heap-owned by the record. */

enum job_state {
    JOB_QUEUED,
    JOB_STARTING,
    JOB_RUNNING,
    JOB_RECOVERING,
    JOB_STOPPING,
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_CANCELLED,
};
enum generation_state {
    GENERATION_FORMING,
    GENERATION_READY,
    GENERATION_RUNNING,
    GENERATION_DRAINING,
    GENERATION_CLOSED,
    GENERATION_FAILED
};
enum rank_state { RANK_ASSIGNED, RANK_SPAWNED, RANK_JOINED, RANK_TRAINING, RANK_EXITED, RANK_LOST };
enum node_state { NODE_JOINING, NODE_ALIVE, NODE_SUSPECT, NODE_DRAINING, NODE_LOST, NODE_LEFT };

extern const struct sm job_sm, generation_sm, rank_sm, node_sm; /* states.c */

struct job_record {
    int64_t id;
    char *request_id;
    uint8_t body_digest[DIGEST_BYTES]; /* of the whole request: tells a retry from another body */
    char *name, *user, *job_file;
    char **env; /* carried from the submitter, "NAME=value" */
    enum job_state state;
    char *reason;       /* why it is in this state, one line; may be NULL */
    int64_t generation; /* the newest, 0 before the first */
    int64_t restarts_used, continues;
    int64_t created_ms, started_ms, ended_ms;
    int exit_code;
    int64_t next_spawn;
    enum job_state goal;          /* while stopping: the end it is stopped for (cancelled or failed) */
    bool kill;                    /* stopping without snapshot or grace */
    int stop_signal;              /* stopping: what its processes get first, 0: SIGTERM */
    int64_t nodes_min, nodes_max; /* a user's resize; 0: what the job file says */
    int64_t fault_ms, fault_step; /* since when the job is behind, and where it was; 0: it is not */
    char *last_restart;           /* "rank 2 killed by signal 9, cost 0.4 s"; NULL: none yet */
    int64_t last_restart_ms;
    char *progress; /* JSON, as reports.c prints it: how far it had got a short while ago; NULL: not known */
    /* Snapshots of this and earlier generations, and of jobs that it continues, no longer count: a user has
     * it begin again. 0: all count. */
    int64_t scratch_generation;
    /* How often the job file was changed while the job ran, and the last such version that its ranks have taken over. */
    int64_t revision, revision_used;
};

struct node_record {
    char *name, *instance, *address, *version, *log_dir;
    enum node_state state;
    bool drain; /* the operator wants it empty: outlives a loss and a return */
    char *note;
    int cpu_slots, cores, port_first, port_last;
    int64_t memory_bytes;
    char *gpus;      /* JSON array of {uuid, name, memory_bytes, index, healthy, problem} */
    int64_t seen_ms; /* of the last state move, for people; liveness itself stays in memory */
};

struct generation_record {
    int64_t job, number;
    enum generation_state state;
    char *reason;
    int world_size, node_count, master_port;
    char *master_addr;
    bool charged;         /* its end was a failure that counted against max_restarts */
    bool error;           /* that failure was an error of the program: its own exit code */
    int64_t failed_spawn; /* the first member that failed, 0: none did */
    bool has_step;        /* a step was reported before it failed: last_step */
    int64_t last_step;
    int64_t stop_step; /* of a command: all ranks stop at the first step from this one on; 0: not known */
    uint8_t *bootstrap;
    size_t bootstrap_size;
    uint8_t key[32];
    bool has_key; /* key and source were fixed when all had joined */
    int source_rank;
    int64_t source_generation, source_step;
    char *source_digest, *source_path;
    int64_t created_ms, ready_ms, closed_ms;
};

/* A rank of a generation; its spawn is the process that holds it. The ranks alone say which spawns are
 * members of a generation. */
struct rank_record {
    int64_t job, generation;
    int rank, node_rank, local_rank;
    char *node;
    int64_t spawn;
    enum rank_state state;
    uint8_t *address; /* as given to Join */
    size_t address_size;
    char *version, *computes; /* the same; NULL: not given */
};

/* One worker process: (job, spawn) is unique. It holds its slots until it is known dead. It may outlive its
 * generation and then hold another rank in the next one, so its rank is found in the rank records. At most
 * one open generation has it as a member, as one rank. */
struct spawn_record {
    int64_t job, spawn;
    /* The membership that it was formed for. With the node they name its log directory, which stays the same
     * in later generations. */
    int64_t first_generation;
    int first_local_rank;
    char *node;
    int cpu_slot; /* -1: it has GPUs */
    char **gpu_uuids;
    uint8_t token[32]; /* what the wish carries to the node; needed again after a restart */
    uint8_t token_hash[DIGEST_BYTES];
    /* The token is no longer valid, and no later generation can have this spawn as a member: it has ended, or
     * must stop. */
    bool revoked;
    bool dead; /* the node said so, its lease ran out, or the operator forgot the node */
    bool exit_known;
    int code, signal;
    bool out_of_memory, lost;
    bool stopped; /* it was told to stop before it ended */
    char *message, *stderr_tail;
    int64_t pid, started_ms, ended_ms;
    int64_t last_commit; /* of a command: the number of its last commit that is in the snapshots; 0: none */
};

struct snapshot_record {
    int64_t job, generation, step, bytes, committed_ms;
    char *digest, *path;
    char **nodes; /* that hold a copy */
};

struct event_record {
    int64_t id, time_ms, job, generation;
    char *what, *text;
};

/* One event for one hook: it waits in the table until the hook has got it. */
struct notice_record {
    int64_t id, time_ms, job, generation; /* job 0: an event of a node */
    char *hook;                           /* a name in coordinator.yaml; "#12": the `tell` of job 12 */
    char *what, *text;                    /* "failed"; one line for people */
    char *name, *user;                    /* of the job */
    char *node;                           /* of an event of a node; "" else */
    char *url;                            /* of a job's `tell`, secret; "": as the hook says */
    int64_t shape;                        /* of a job's `tell`: enum tell_shape */
};

/* A person with a token of their own. */
struct user_record {
    char *name, *role;                /* "view", "submit", "operate" */
    uint8_t token_hash[DIGEST_BYTES]; /* of the token's text */
    int64_t created_ms, token_ms;     /* when the user was added, when the token was made */
};

/* One thing that somebody did, or was refused. */
struct audit_record {
    int64_t id, time_ms, job; /* job 0: none */
    char *who, *origin;       /* a name; "10.0.0.7", "unix uid 0 pid 4711" */
    char *what, *text;        /* "job_cancel"; "cancel job 12 'gpt'" */
};

#endif
