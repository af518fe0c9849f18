#ifndef DDP_TRAINER_MEMBER_LINK_INTERNAL_H
#define DDP_TRAINER_MEMBER_LINK_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer/member/link/link.h"
#include "trainer/member/link/watch.h"

struct link_channel;

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

const char *link_env(const char *name); /* NULL: not set, or empty */
/* A growing pause between tries, with jitter; it ends at once on link_cancel. `tries` counts up from 0. */
void link_pause(struct link *r, int *tries);
/* The coordinator is away, or was slow: worth another try. */
bool link_may_retry(enum err_code code);
enum err_code link_cancelled(struct err *e);
/* Raises the level and calls the callback, once a generation. */
void link_set_over(struct link *r, int64_t generation);

#endif
