#ifndef DDP_TESTS_STANDINS_NCCL_INTERNAL_H
#define DDP_TESTS_STANDINS_NCCL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nccl.h"

/* The group is a star: rank 0 has a connection to every other rank, each other rank one to rank 0. */

struct peer {
    int fd;      /* -1: not connected */
    size_t done; /* bytes that have been sent or received in the present transfer */
    char *data;  /* rank 0: the data received from this peer */
};

struct ncclComm {
    atomic_int holders; /* references: its owner, and every queued operation */
    atomic_bool aborted;
    int rank, ranks, listener; /* listener: rank 0's socket, on which the id's address listens */
    struct peer *peers;        /* rank 0: by rank; other ranks: only [0] */
    ncclUniqueId id;
    bool formed, connected;                   /* connected: since the first operation, as in the real NCCL */
    int refused;                              /* rank 0: a rank with another version of NCCL has connected */
    _Atomic int state;                        /* ncclResult_t that ncclCommGetAsyncError returns */
    size_t sums, broadcasts, broadcast_bytes; /* operations that were started */
    size_t scatters, gathers, gather_bytes;   /* reduces count as scatters */
    size_t sum_bytes;                         /* data of sums, by parts or whole */
};

/* Returns whether DDP_STANDIN_NCCL_FAULT names this fault. */
bool standin_fault(const char *name);
/* Kills this process if that fault is wanted, without a chance to close anything. */
void standin_die(const char *fault);
int standin_version(void);
void standin_hold(struct ncclComm *c);
void standin_drop(struct ncclComm *c); /* the last reference frees it */

/* form.c: makes one step towards the group. Its state is ncclInProgress until all ranks have connected. */
void standin_form(struct ncclComm *c);
/* Returns rank 0's socket of an id that this process made. -1: it made none, or has given it away. */
int standin_take_listener(const ncclUniqueId *id);
void standin_close_listener(struct ncclComm *c); /* if it has one */

#endif
