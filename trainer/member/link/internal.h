#ifndef DDP_TRAINER_MEMBER_LINK_INTERNAL_H
#define DDP_TRAINER_MEMBER_LINK_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/rpc_client.h"
#include "trainer/member/link/link.h"

struct report {
    struct report_place place;
    char *address, *directory, *cluster;
    char *token; /* in hex, NULL: none */
    bool has_coordinator;
    struct report_link *link; /* the newest; under the lock */
    char *refused;            /* an address that cannot be used, so that it is said once */
    const volatile int *stop_signal;
    atomic_int committing; /* calls in progress that a stop must not wait for without end */
    atomic_bool given_up;
    int fd; /* progress lines, -1: nobody wants them */
    atomic_bool cancelled, stale, stop_asked;
    _Atomic uint64_t dropped;
    pthread_mutex_t lock; /* for changed, which cuts pauses short */
    pthread_cond_t changed;
    pthread_t watch;
    bool watching;
    report_watch_fn on_stale;
    void *on_stale_arg;
};

/* ---- link.c: the channel to the coordinator, which another one replaces when the coordinator moves. A call
 * takes the link and puts it when it has ended; the last one closes it. */

struct report_link {
    struct rpc_channel *channel;
    char *target;
    int users; /* under the report's lock */
};
MUST_CHECK enum err_code report_link_open(struct report *r, struct err *e);
struct report_link *report_link_take(struct report *r);
void report_link_put(struct report *r, struct report_link *link); /* NULL is fine */
/* Looks where the coordinator is now. True: elsewhere than before; calls to the former address end with
 * CANCELLED. Any thread. */
bool report_link_follow(struct report *r);
/* CANCELLED because of that, and not because this worker ends: worth another try. */
bool report_link_left(struct report *r, const struct report_link *link);

const char *report_env(const char *name); /* NULL: not set, or empty */
/* A growing pause between tries, with jitter; it ends at once on report_cancel. `tries` counts up from 0. */
void report_pause(struct report *r, int *tries);
/* The coordinator is away, or was slow: worth another try. */
bool report_may_retry(enum err_code code);
enum err_code report_cancelled(struct err *e);
/* The generation is over: raises the flag and calls the callback, once. */
void report_set_stale(struct report *r);

#endif
