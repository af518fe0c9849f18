#ifndef DDP_BASE_WEB_WEB_WORKERS_H
#define DDP_BASE_WEB_WEB_WORKERS_H

#include <stdbool.h>
#include <stddef.h>

/* A few threads that run tasks in the order in which they came. */

struct web_task {
    void (*run)(struct web_task *task);
    struct web_task *next;
};

struct web_workers;
struct web_workers *web_workers_create(size_t threads, size_t most);
/* False: as many tasks wait as are allowed. */
bool web_workers_add(struct web_workers *w, struct web_task *task);
/* Runs the waiting tasks, then ends the threads. No further task is accepted. */
void web_workers_end(struct web_workers *w);
void web_workers_free(struct web_workers *w); /* after web_workers_end */

#endif
