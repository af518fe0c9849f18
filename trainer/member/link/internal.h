#ifndef DDP_TRAINER_MEMBER_LINK_INTERNAL_H
#define DDP_TRAINER_MEMBER_LINK_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer/member/link/link.h"
#include "trainer/member/link/watch.h"

struct link_channel;
struct rpc_stream;

struct link {
    struct link_place place;
    struct link_member first;
    char *address, *directory, *cluster;
    char *token; /* in hex; NULL: none */
    bool has_coordinator;
    struct link_channel *channel; /* the newest channel; guarded by `lock` */
    char *refused;                /* an address that cannot be used; kept so that it is logged once */
    const atomic_int *stop_signal;
    atomic_int committing; /* number of commits in progress; a stop waits for them only for a limited time */
    atomic_bool given_up;
    int fd; /* for progress lines; -1: they are not written */
    atomic_bool cancelled;
    atomic_bool away;  /* the coordinator does not answer Watch */
    atomic_bool asked; /* Watch is to be called again, although nothing has changed */
    /* The generation that this process joined last; before that, the environment's. */
    _Atomic int64_t generation;
    atomic_int rank;                  /* this process's rank in that generation */
    _Atomic int64_t over, stop_asked; /* generations up to these numbers are over, or are asked to stop */
    _Atomic uint64_t dropped;
    atomic_int
        counts_parts; /* 1: the coordinator waits for all parts of a snapshot; 0: not known yet; -1: no */
    /* The last snapshot that could not be written. The generation is set after the step. */
    _Atomic int64_t failed_step, failed_generation;
    int64_t parts_wait_ms; /* for other ranks' parts; 0: as in commit.c */
    pthread_mutex_t lock;  /* guards channel and `changed`, which ends pauses early */
    pthread_cond_t changed;
    pthread_t watch;
    bool watching;
    struct rpc_stream *stream; /* the open Watch; guarded by `lock`; NULL: none */
    atomic_bool stays;
    _Atomic int64_t handover, ready; /* watch.h: link_handover, link_set_ready */
    _Atomic int64_t gathered;        /* watch.h: link_set_gathered */
    _Atomic int64_t broken;          /* the generation whose group no longer works; 0: none */
    _Atomic int64_t
        arrived; /* watch.h: link_set_arrived; the exchange times 2, plus 1 if this process holds there */
    _Atomic int64_t hold; /* watch.h: link_hold */
    struct {              /* what the coordinator says about the time after a generation; guarded by `lock` */
        int64_t generation; /* the generation of the stream that brought it */
        enum link_word word;
        bool late; /* watch.h: link_late */
        struct link_member next;
        void (*heard)(void);
    } after;
    pthread_mutex_t watch_lock; /* guards on_over and on_over_arg; held while on_over runs */
    link_over_fn on_over;       /* NULL: no formation listens */
    void *on_over_arg;
    struct { /* tuning.h */
        pthread_mutex_t lock;
        char *text;                  /* of the revision `asked`, until the owner takes it; NULL: none waits */
        _Atomic int64_t asked, used; /* revisions */
        int64_t told; /* the revision in use of which the coordinator knows; guarded by link's `lock` */
        int64_t step; /* at which all ranks began to use it */
    } tuning;
};

const char *link_env(const char *name); /* returns NULL if the variable is not set or empty */
/* Waits before the next try, longer each time, with jitter. Ends at once on link_cancel. `tries` counts up
 * from 0. */
void link_pause(struct link *r, int *tries);
/* Whether the coordinator was away or slow, so that the call should be retried. */
bool link_may_retry(enum err_code code);
enum err_code link_cancelled(struct err *e);
/* Watch dials again at once, with what has changed. */
void link_watch_again(struct link *r);
/* In tuning.c. In another generation this process may have another rank, and Join brings the newest job file. */
void link_tuning_forget(struct link *r);
/* In tuning.c, for the Watch thread. Returns the revision in use. */
void link_tuning_heard(struct link *r, int64_t revision, const char *text);
int64_t link_tuning_used(struct link *r, int64_t *step);
/* The coordinator has answered a Watch that says that this revision is in use. */
void link_tuning_told(struct link *r, int64_t revision);
/* Marks the generations up to this one as over, and calls the callback, once for each generation. */
void link_set_over(struct link *r, int64_t generation);

#endif
