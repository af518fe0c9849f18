#ifndef DDP_DAEMON_COORDINATOR_CORE_EFFECT_H
#define DDP_DAEMON_COORDINATOR_CORE_EFFECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/change.h"

/* What the core wants done. Changes are committed first, in one transaction; then the effects are carried
 * out, in order. */

enum core_join_state { CORE_JOIN_PENDING, CORE_JOIN_BOOTSTRAP, CORE_JOIN_READY }; /* the wire's numbers */

enum core_effect_kind {
    EFFECT_REPLY, /* call, err; after OK: submit has job, existed and warning; cancel, resize, restart have job;
                     priority, hold too; delete has job, and texts: the nodes that keep its log files, as they are not
                     connected;
                     tune has job, revision, when, and texts: key, old and new value of each change; a
                     commit of a snapshot has pending: call again */
    EFFECT_JOIN, /* call, state, job, generation, rank: core_generation and core_rank have the answer's content */
    EFFECT_WATCH, /* call, member, wait, late, generation, rank, stop, handover, hold; with tune the job has a new job file: job;
                     after !member && !wait end the stream */
    EFFECT_WELCOME,          /* session */
    EFFECT_REFUSE,           /* session, err: end it with this status */
    EFFECT_CLOSE,            /* session: the agent has a newer session; end this one with ABORTED */
    EFFECT_ACK,              /* session, sequence, heartbeat_ms: renews the node's leases */
    EFFECT_CLEAR_GPU_FAULTS, /* session: the operator has cleared the faults of the node's GPUs */
    EFFECT_WISH,             /* session, node: send core_wish(node) */
    EFFECT_DELETE_LOGS,      /* session, job: the job was deleted, and its log files on this node go too */
    EFFECT_LOOK,             /* session, job: ask the node for core_snapshot_paths(job) */
    EFFECT_JOB_CHANGED,      /* job: its status has changed; tell its watchers */
    EFFECT_NODE_CHANGED,     /* node; if it is lost, end its log reads with that reason */
};

struct core_effect {
    enum core_effect_kind kind;
    uint64_t call, session;
    int64_t job, generation, sequence, revision;
    int64_t heartbeat_ms; /* of an acknowledgement: the node's interval from now on */
    int64_t handover;     /* the number of the one that members are to wait for between two steps; 0: none */
    int rank;
    enum core_join_state state;
    bool existed, member, wait, stop, pending, tune;
    int64_t
        hold; /* of a watch: hold before this exchange or a later one, for a late member that comes back; 0: no */
    bool late;           /* of a watch, with wait: a round has closed without the worker */
    const char *when;    /* static */
    char *node, **texts; /* owned by the effect; texts: NULL-terminated, or NULL; of a submit: warnings */
    struct err err;
};

struct core_out {
    struct change *changes;
    struct core_effect *effects;
    size_t change_count, change_cap, effect_count, effect_cap;
};
void core_out_clear(struct core_out *out); /* keeps the arrays */
void core_out_release(struct core_out *out);

#endif
