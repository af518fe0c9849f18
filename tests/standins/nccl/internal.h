#ifndef DDP_TESTS_STANDINS_NCCL_INTERNAL_H
#define DDP_TESTS_STANDINS_NCCL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nccl.h"

/* A star: rank 0 holds a connection to everyone, the others one to it. */

struct peer {
    int fd;      /* -1: not there */
    size_t done; /* of what is now being sent or received */
    char *data;  /* rank 0: what came of it */
};

struct ncclComm {
    atomic_int holders; /* its owner, and every operation that is queued */
    atomic_bool aborted;
    int rank, ranks, listener; /* listener: rank 0's, of the id */
    struct peer *peers;        /* by rank; of the others, only [0] */
    ncclUniqueId id;
    bool formed, connected; /* connected: by the first operation, as the real one */
    int refused;            /* connecting: how often */
    _Atomic int state;      /* ncclResult_t: what ncclCommGetAsyncError says */
};

/* Whether DDP_STANDIN_NCCL_FAULT names it. */
bool standin_fault(const char *name);
int standin_version(void);
void standin_hold(struct ncclComm *c);
void standin_drop(struct ncclComm *c); /* the last one frees it */

/* form.c: takes the group a bit further; its state is ncclInProgress until all are there. */
void standin_form(struct ncclComm *c);
/* Rank 0's socket of an id that this process made; -1: it made none, or gave it away. */
int standin_take_listener(const ncclUniqueId *id);
void standin_close_listener(struct ncclComm *c); /* where it has one */

#endif
