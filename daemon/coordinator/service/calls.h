#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CALLS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/rpc_server.h"

/* Calls that stay open: those that the core owes an answer, and streams that follow something. Loop
 * thread. */

struct service;

enum call_kind {
    CALL_SUBMIT,
    CALL_CANCEL,
    CALL_CHANGE, /* resize, restart, priority, hold */
    CALL_DELETE,
    CALL_TUNE,
    CALL_NODE,
    CALL_JOIN,
    CALL_PUT_BOOTSTRAP,
    CALL_COMMIT_SNAPSHOT,
    CALL_SNAPSHOT_FAILURE,
    CALL_WATCH,     /* a worker's stream */
    CALL_WATCH_JOB, /* a user's stream, which the core does not know */
};
struct call {
    struct service *service;
    struct rpc_call *rpc;
    uint64_t handle;
    enum call_kind kind;
    int64_t job;
    char *node;               /* CALL_NODE */
    bool dirty;               /* CALL_WATCH_JOB: the job changed since the last message */
    struct call *next, *prev; /* CALL_WATCH_JOB: service.watches */
};

/* Makes a call the rpc's user data. owed: the core will answer it, by its handle. */
struct call *call_open(struct service *s, struct rpc_call *rpc, enum call_kind kind, bool owed);
/* The on_end of all methods that use call_open: frees the call and, if it was still owed, tells the core. */
void call_on_end(struct rpc_call *rpc, bool cancelled);
/* The call is answered now: removes it from those that are owed. NULL: its client has gone. */
struct call *call_take(struct service *s, uint64_t handle);
void calls_job_changed(struct service *s, int64_t job); /* marks the watches of the job */
void calls_push(struct service *s);                     /* sends to the marked watches */

#endif
