#include "base/web/web_workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

/* A task that runs. The task itself may be freed as soon as it has run. */
struct workers_run {
    const void *owner;
    bool slow;
    struct workers_run *next;
};
struct web_workers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct web_workers_limits limits;
    struct web_task *first, **last;
    struct workers_run *runs;
    bool ending;
    pthread_t list[];
};

static bool workers_may_run(const struct web_workers *w, const struct web_task *task)
{
    size_t slow = 0, owned = 0, owned_slow = 0;
    for (const struct workers_run *run = w->runs; run; run = run->next) {
        const bool same = task->owner && run->owner == task->owner;
        slow += run->slow;
        owned += same;
        owned_slow += same && run->slow;
    }
    return owned < w->limits.owner_threads &&
           (!task->slow || (slow < w->limits.slow && owned_slow < w->limits.owner_slow));
}

/* Takes the first task that may run now. */
static struct web_task *workers_take(struct web_workers *w)
{
    for (struct web_task **at = &w->first; *at; at = &(*at)->next) {
        struct web_task *task = *at;
        if (!w->ending && !workers_may_run(w, task))
            continue;
        *at = task->next;
        if (!*at)
            w->last = at;
        return task;
    }
    return NULL;
}

static void workers_forget_run(struct web_workers *w, const struct workers_run *run)
{
    struct workers_run **at = &w->runs;
    while (*at != run)
        at = &(*at)->next;
    *at = run->next;
}

static void *workers_main(void *arg)
{
    struct web_workers *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct web_task *task;
        while (!(task = workers_take(w)) && !w->ending)
            pthread_cond_wait(&w->changed, &w->lock);
        if (!task)
            break;
        struct workers_run run = {task->owner, task->slow, w->runs};
        w->runs = &run;
        pthread_mutex_unlock(&w->lock);
        task->run(task);
        pthread_mutex_lock(&w->lock);
        workers_forget_run(w, &run);
        /* The end of a run can let several tasks go: one of its owner, and a slow one of another. */
        if (w->first)
            pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct web_workers *web_workers_create(const struct web_workers_limits *limits)
{
    struct web_workers *w = xcalloc(1, sizeof(*w) + limits->threads * sizeof(w->list[0]));
    sigset_t all, before;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->limits = *limits;
    w->last = &w->first;
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (size_t i = 0; i < limits->threads; i++)
        BUG_ON(pthread_create(&w->list[i], NULL, workers_main, w) != 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w;
}

bool web_workers_add(struct web_workers *w, struct web_task *task)
{
    size_t waiting = 0, owned = 0;
    pthread_mutex_lock(&w->lock);
    for (const struct web_task *other = w->first; other; other = other->next) {
        waiting++;
        owned += task->owner && other->owner == task->owner;
    }
    const bool fits = waiting < w->limits.waiting && owned < w->limits.owner_waiting && !w->ending;
    if (fits) {
        task->next = NULL;
        *w->last = task;
        w->last = &task->next;
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return fits;
}

void web_workers_end(struct web_workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < w->limits.threads; i++)
        pthread_join(w->list[i], NULL);
}

void web_workers_free(struct web_workers *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
