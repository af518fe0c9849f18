#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CALLS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/rpc_server.h"

/* A call that waits for the core's answer, or a stream that follows something. */

struct service;

enum call_kind {
    CALL_SUBMIT,
    CALL_CANCEL,
    CALL_CHANGE, /* resize, restart */
    CALL_NODE,
    CALL_JOIN,
    CALL_PUT_BOOTSTRAP,
    CALL_COMMIT_SNAPSHOT,
    CALL_SNAPSHOT_FAILURE,
    CALL_WATCH,     /* a worker's */
    CALL_WATCH_JOB, /* a user's: known to the service alone */
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

struct call *call_open(struct service *s, struct rpc_call *rpc, enum call_kind kind, bool owed);
void call_end(struct rpc_call *rpc, bool cancelled); /* every method's on_end */
struct call *call_take(struct service *s, uint64_t handle);
void calls_push(struct service *s);                     /* sends the watches that are dirty */
void calls_job_changed(struct service *s, int64_t job); /* marks them */

#endif
