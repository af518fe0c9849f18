#include "base/web/web_workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

struct web_workers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct web_task *first, **last;
    size_t waiting, most, threads;
    bool ending;
    pthread_t list[];
};

static void *workers_main(void *arg)
{
    struct web_workers *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->ending)
            pthread_cond_wait(&w->changed, &w->lock);
        struct web_task *task = w->first;
        if (!task)
            break;
        w->first = task->next;
        if (!w->first)
            w->last = &w->first;
        w->waiting--;
        pthread_mutex_unlock(&w->lock);
        task->run(task);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct web_workers *web_workers_create(size_t threads, size_t most)
{
    struct web_workers *w = xcalloc(1, sizeof(*w) + threads * sizeof(w->list[0]));
    sigset_t all, before;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->last = &w->first;
    w->most = most;
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (; w->threads < threads; w->threads++)
        BUG_ON(pthread_create(&w->list[w->threads], NULL, workers_main, w) != 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w;
}

bool web_workers_add(struct web_workers *w, struct web_task *task)
{
    pthread_mutex_lock(&w->lock);
    const bool fits = w->waiting < w->most && !w->ending;
    if (fits) {
        task->next = NULL;
        *w->last = task;
        w->last = &task->next;
        w->waiting++;
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
    for (size_t i = 0; i < w->threads; i++)
        pthread_join(w->list[i], NULL);
}

void web_workers_free(struct web_workers *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
