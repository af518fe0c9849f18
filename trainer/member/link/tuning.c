#include "trainer/member/link/tuning.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/member/link/internal.h"

#define TOLD_S 5 /* the Watch thread looks once a second whether there is something to tell */

bool link_tune_asked(const struct link *r)
{
    return atomic_load(&r->tuning.asked) != atomic_load(&r->tuning.used);
}

char *link_take_tuning(struct link *r, int64_t *revision)
{
    char *text = NULL;

    pthread_mutex_lock(&r->tuning.lock);
    if (link_tune_asked(r)) {
        *revision = atomic_load(&r->tuning.asked);
        text = steal(r->tuning.text);
    }
    pthread_mutex_unlock(&r->tuning.lock);
    return text;
}

void link_tuned(struct link *r, int64_t revision, int64_t step)
{
    pthread_mutex_lock(&r->tuning.lock);
    /* A revision that came since then still waits. */
    if (!r->tuning.text)
        atomic_store(&r->tuning.asked, revision);
    r->tuning.step = step;
    atomic_store(&r->tuning.used, revision);
    pthread_mutex_unlock(&r->tuning.lock);
}

void link_tuning_forget(struct link *r)
{
    pthread_mutex_lock(&r->tuning.lock);
    free(steal(r->tuning.text));
    atomic_store(&r->tuning.asked, 0);
    atomic_store(&r->tuning.used, 0);
    r->tuning.step = 0;
    pthread_mutex_unlock(&r->tuning.lock);
}

void link_tuning_heard(struct link *r, int64_t revision, const char *text)
{
    pthread_mutex_lock(&r->tuning.lock);
    if (revision != atomic_load(&r->tuning.used)) {
        free(r->tuning.text);
        r->tuning.text = xstrdup(text);
        atomic_store(&r->tuning.asked, revision);
    }
    pthread_mutex_unlock(&r->tuning.lock);
}

int64_t link_tuning_used(struct link *r, int64_t *step)
{
    int64_t revision;

    pthread_mutex_lock(&r->tuning.lock);
    revision = atomic_load(&r->tuning.used);
    *step = r->tuning.step;
    pthread_mutex_unlock(&r->tuning.lock);
    return revision;
}

void link_tuning_told(struct link *r, int64_t revision)
{
    pthread_mutex_lock(&r->lock);
    r->tuning.told = revision;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void link_await_told(struct link *r)
{
    int64_t used = atomic_load(&r->tuning.used);
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += TOLD_S;
    pthread_mutex_lock(&r->lock);
    while (r->watching && r->tuning.told != used && !atomic_load(&r->cancelled))
        if (pthread_cond_timedwait(&r->changed, &r->lock, &until) == ETIMEDOUT)
            break;
    bool told = r->tuning.told == used;
    pthread_mutex_unlock(&r->lock);
    if (r->watching && !told)
        log_warn("tune_untold", "revision=%lld why=\"the coordinator does not answer\"", (long long)used);
}
