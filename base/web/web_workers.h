#ifndef DDP_BASE_WEB_WEB_WORKERS_H
#define DDP_BASE_WEB_WEB_WORKERS_H

#include <stdbool.h>
#include <stddef.h>

/* A few threads that run tasks, in the order in which they were added. A task waits longer while its owner has as many
 * threads as it may have; a slow task also while all slow tasks together have as many as they may have. So neither one
 * owner nor slow tasks delay the others. */

struct web_task {
    void (*run)(struct web_task *task);
    const void *owner; /* tells owners apart, and is not read; NULL: no owner's limits apply */
    bool slow;         /* may take many seconds, because it waits for something other than the coordinator */
    struct web_task *next;
};

struct web_workers_limits {
    size_t threads, slow; /* tasks that run at a time; of these, slow ones */
    size_t waiting;       /* tasks that wait for a thread */
    /* of one owner */
    size_t owner_threads, owner_slow, owner_waiting;
};

struct web_workers;
struct web_workers *web_workers_create(const struct web_workers_limits *limits);
/* False: as many tasks wait as are allowed. */
bool web_workers_add(struct web_workers *w, struct web_task *task);
/* Runs the waiting tasks, now without the limits, then ends the threads. No further task is accepted. */
void web_workers_end(struct web_workers *w);
void web_workers_free(struct web_workers *w); /* after web_workers_end */

#endif
