#ifndef DDP_TRAINER_REPORT_INTERNAL_H
#define DDP_TRAINER_REPORT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/rpc_client.h"
#include "trainer/report/report.h"

struct report {
    struct report_place place;
    char *address, *directory, *cluster;
    struct rpc_channel *channel; /* NULL: no coordinator */
    int fd;                      /* progress lines, -1: nobody wants them */
    atomic_bool cancelled, stale, stop_asked;
    _Atomic uint64_t dropped;
    pthread_mutex_t lock; /* for changed, which cuts pauses short */
    pthread_cond_t changed;
    pthread_t watch;
    bool watching;
    report_watch_fn on_stale;
    void *on_stale_arg;
};

/* A growing pause between tries, with jitter; it ends at once on report_cancel. `tries` counts up from 0. */
void report_pause(struct report *r, int *tries);
/* The coordinator is away, or was slow: worth another try. */
bool report_may_retry(enum err_code code);
enum err_code report_cancelled(struct err *e);
/* The generation is over: raises the flag and calls the callback, once. */
void report_set_stale(struct report *r);

#endif
