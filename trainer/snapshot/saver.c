#include "trainer/snapshot/saver.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"

struct saver {
    struct saver_config config;
    char *dir;
    float *stage; /* the staged state, then the staged parts */
    size_t floats, bytes;
    int64_t *samples; /* samples of each part */

    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t moved;
    bool busy, closing, ended;
    struct snapshot_place place;
    struct err result; /* result of the last snapshot that ended */
};

static enum err_code saver_save(struct saver *s, const struct snapshot_place *place, struct err *e)
{
    struct snapshot_files files = {0};
    struct err warning = {0};
    if (snapshot_write(s->dir, s->config.layout, place, s->stage, s->stage + s->floats, s->samples, &files,
                       e))
        return e->code;
    if (s->config.commit(s->config.arg, place, &files, e) || snapshot_mark_committed(&files, place, e)) {
        snapshot_files_release(&files);
        return e->code;
    }
    snapshot_files_release(&files);
    if (fault_hit("snapshot.prune"))
        return ERR_OK;
    if (snapshot_prune(s->dir, place, s->config.after, s->config.keep, s->config.keep_best, &warning))
        log_warn("snapshot_prune_failed", "why=%s", LOG_Q(warning.msg));
    return ERR_OK;
}

static void *saver_main(void *arg)
{
    struct saver *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->closing)
            pthread_cond_wait(&s->moved, &s->lock);
        /* The saver is closing, and no snapshot is left to write. */
        if (!s->busy)
            break;
        struct snapshot_place place = s->place;
        struct err e = {0};
        pthread_mutex_unlock(&s->lock);
        if (saver_save(s, &place, &e))
            log_warn("snapshot_failed", "step=%lld why=%s", (long long)place.step, LOG_Q(e.msg));
        pthread_mutex_lock(&s->lock);
        s->result = e;
        s->busy = false;
        s->ended = true;
        pthread_cond_broadcast(&s->moved);
        /* Called after busy was cleared, because it may block, and the next snapshot need not wait for it. */
        if (!e.code || !s->config.failed)
            continue;
        pthread_mutex_unlock(&s->lock);
        s->config.failed(s->config.arg, &place, &e);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Starts the thread with all signals blocked, because the main thread handles them. */
static int start_thread(struct saver *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&s->thread, NULL, saver_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static void saver_free(struct saver *s)
{
    pthread_cond_destroy(&s->moved);
    pthread_mutex_destroy(&s->lock);
    free(s->stage);
    free(s->samples);
    free(s->dir);
    free(s);
}

enum err_code saver_open(struct saver **out, const struct saver_config *config, struct err *e)
{
    struct saver *s = xcalloc(1, sizeof(*s));
    s->config = *config;
    s->dir = xstrdup(config->dir);
    s->floats = snapshot_floats(config->layout);
    s->bytes = s->floats * (size_t)(1 + config->max_parts) * sizeof(float);
    s->stage = calloc(1, s->bytes);
    s->samples = xcalloc((size_t)config->max_parts + 1, sizeof(*s->samples));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    int code = 0;
    if (!s->stage)
        err_set(e, ERR_RESOURCE_EXHAUSTED,
                "the copy that snapshots are written from (%zu bytes): out of memory", s->bytes);
    else if ((code = start_thread(s)) != 0)
        err_sys(e, code, "cannot start the thread that writes snapshots");
    if (!s->stage || code) {
        saver_free(s);
        return e->code;
    }
    *out = s;
    return ERR_OK;
}

void saver_close(struct saver *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    saver_free(s);
}

bool saver_busy(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    bool busy = s->busy;
    pthread_mutex_unlock(&s->lock);
    return busy;
}

size_t saver_bytes(const struct saver *s)
{
    return s->bytes;
}

float *saver_state(struct saver *s)
{
    return s->stage;
}

float *saver_part(struct saver *s, int64_t part)
{
    BUG_ON(part < 0 || part >= s->config.max_parts);
    return s->stage + s->floats * (size_t)(1 + part);
}

int64_t *saver_part_samples(struct saver *s)
{
    return s->samples;
}

void saver_submit(struct saver *s, const struct snapshot_place *place)
{
    BUG_ON(place->parts > s->config.max_parts);
    pthread_mutex_lock(&s->lock);
    BUG_ON(s->busy);
    s->place = *place;
    s->busy = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

enum err_code saver_wait(struct saver *s, struct err *e)
{
    pthread_mutex_lock(&s->lock);
    while (s->busy)
        pthread_cond_wait(&s->moved, &s->lock);
    enum err_code code = s->result.code;
    if (code)
        *e = s->result;
    pthread_mutex_unlock(&s->lock);
    return code;
}

bool saver_take_result(struct saver *s, struct snapshot_place *place, struct err *e)
{
    pthread_mutex_lock(&s->lock);
    bool ended = s->ended;
    if (ended) {
        *place = s->place;
        *e = s->result;
        s->ended = false;
    }
    pthread_mutex_unlock(&s->lock);
    return ended;
}
