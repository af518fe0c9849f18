#ifndef DDP_TRAINER_MEMBER_LINK_INTERNAL_H
#define DDP_TRAINER_MEMBER_LINK_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/rpc_client.h"
#include "trainer/member/link/link.h"

struct link {
    struct link_place place;
    struct link_member first;
    char *address, *directory, *cluster;
    char *token; /* in hex, NULL: none */
    bool has_coordinator;
    struct link_channel *channel; /* the newest; under the lock */
    char *refused;                /* an address that cannot be used, so that it is said once */
    const volatile int *stop_signal;
    atomic_int committing; /* calls in progress that a stop must not wait for without end */
    atomic_bool given_up;
    int fd; /* progress lines, -1: nobody wants them */
    atomic_bool cancelled;
    _Atomic int64_t generation;       /* the one that this process joined last; at first its environment's */
    atomic_int rank;                  /* in it */
    _Atomic int64_t over, stop_asked; /* levels: generations up to this one are over, are to stop */
    _Atomic uint64_t dropped;
    pthread_mutex_t lock; /* for changed, which cuts pauses short */
    pthread_cond_t changed;
    pthread_t watch;
    bool watching;
    pthread_mutex_t watch_lock; /* for the two below; held while on_over runs */
    link_over_fn on_over;       /* NULL: no formation listens */
    void *on_over_arg;
};

/* ---- link.c: the channel to the coordinator, which another one replaces when the coordinator moves. A call
 * takes the link and puts it when it has ended; the last one closes it. */

struct link_channel {
    struct rpc_channel *rpc;
    char *target;
    int users; /* under the link's lock */
};
MUST_CHECK enum err_code link_channel_open(struct link *r, struct err *e);
struct link_channel *link_channel_take(struct link *r);
void link_channel_put(struct link *r, struct link_channel *channel); /* NULL is fine */
/* Looks where the coordinator is now. True: elsewhere than before; calls to the former address end with
 * CANCELLED. Any thread. */
bool link_channel_follow(struct link *r);
/* CANCELLED because of that, and not because this worker ends: worth another try. */
bool link_channel_left(struct link *r, const struct link_channel *channel);

const char *link_env(const char *name); /* NULL: not set, or empty */
/* A growing pause between tries, with jitter; it ends at once on link_cancel. `tries` counts up from 0. */
void link_pause(struct link *r, int *tries);
/* The coordinator is away, or was slow: worth another try. */
bool link_may_retry(enum err_code code);
enum err_code link_cancelled(struct err *e);
/* Raises the level and calls the callback, once a generation. */
void link_set_over(struct link *r, int64_t generation);

#endif
