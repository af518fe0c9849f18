#include "trainer/snapshot/saver.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

struct saver {
    struct saver_config config;
    char *dir;
    float *stage; /* the staged state, then the staged model if it is another */
    size_t floats, bytes;
    struct snapshot_part *parts; /* NULL: ranks do not differ */

    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t moved;
    bool busy, closing, ended;
    bool copies, copying; /* the state of the snapshot is still to be staged; some thread stages it */
    struct err copied;    /* of the owner's copy */
    struct snapshot_place place;
    int64_t part_samples;
    bool last;                          /* the snapshot is the owner's last one */
    int64_t patience_ms;                /* how long it is tried again if a resource is exhausted */
    struct err result;                  /* result of the last snapshot that ended */
    struct snapshot_place result_place; /* its place: `place` may be that of the next one */
};

struct saver_write_check {
    const struct saver_config *config;
    const struct snapshot_place *place;
};

static bool saver_write_is_over(void *arg)
{
    const struct saver_write_check *w = arg;
    return w->config->over && w->config->over(w->config->arg, w->place);
}

/* This rank's part, and what ranks share if it is a writer. */
static enum err_code saver_write(struct saver *s, const struct snapshot_place *place, int64_t part_samples,
                                 struct snapshot_files *files, struct err *e)
{
    const struct saver_config *c = &s->config;
    const struct snapshot_part *parts = place->parts ? s->parts : NULL;
    struct saver_write_check write = {c, place};
    const struct safetensors_check check = {saver_write_is_over, &write};
    struct snapshot_layout layout = *c->layout;
    int64_t bytes = 0;
    layout.check = &check;
    if (place->divided &&
        snapshot_part_write_divided(s->dir, &layout, place, c->part, c->ranges, s->stage, &bytes, e))
        return e->code;
    if (parts && !place->divided &&
        snapshot_part_write(s->dir, &layout, place, c->part, s->stage, part_samples, &bytes, e))
        return e->code;
    if (c->writer && snapshot_write(s->dir, &layout, place, place->divided ? NULL : s->stage,
                                    parts ? saver_model(s) : NULL, parts, files, e))
        return e->code;
    files->bytes += bytes;
    return ERR_OK;
}

/* A failed snapshot would stay until the generation ends. If one node cannot write, all others would fill their disks. */
static void saver_discard(struct saver *s, const struct snapshot_place *place)
{
    struct err e = {0};
    if (place->parts && snapshot_discard(s->dir, place, s->config.part, s->config.writer, &e))
        log_warn("snapshot_not_removed", "step=%lld why=%s", (long long)place->step, LOG_Q(e.msg));
}

/* Returns true if a resource was exhausted, and the snapshot is to be tried again. Else *e is final. `began`: of the first try.
 * The resource is mostly space on the disk, but may be memory or open files, so only why.msg names it. */
static bool saver_tries_again(struct saver *s, const struct snapshot_place *place, int64_t began, int *tries,
                              struct err *e)
{
    /* A permission or a missing directory does not change while the snapshot waits. */
    if (e->code != ERR_RESOURCE_EXHAUSTED || !s->patience_ms)
        return false;
    const int64_t left = began + s->patience_ms - clock_boot_ms();
    const struct err why = *e;
    if (left > 0) {
        const bool again = s->config.pause(s->config.arg, place, &why, left, (*tries)++);
        *e = again ? (struct err){0} : why;
        return again;
    }
    err_set(e, ERR_FAILED_PRECONDITION,
            "cannot write the snapshot of step %lld to %s after trying for %s: %.300s",
            (long long)place->step, s->dir, text_duration(s->patience_ms).text, why.msg);
    return false;
}

static enum err_code saver_save(struct saver *s, const struct snapshot_place *place, int64_t part_samples,
                                struct err *e)
{
    CLEANUP(snapshot_files_release) struct snapshot_files files = {0};
    const int64_t began = clock_boot_ms();
    struct err warning = {0};
    int tries = 0;
    while (saver_write(s, place, part_samples, &files, e)) {
        if (saver_tries_again(s, place, began, &tries, e))
            continue;
        saver_discard(s, place); /* the other parts cannot become a snapshot without this one */
        if (e->code == ERR_CANCELLED)
            err_set(e, ERR_CANCELLED, "generation %lld is over, so its snapshot is not written",
                    (long long)place->generation);
        return e->code;
    }
    /* After other errors the snapshot may be committed: the answer did not come. */
    if (s->config.commit(s->config.arg, place, &files, e)) {
        if (e->code == ERR_ABORTED || e->code == ERR_FAILED_PRECONDITION)
            saver_discard(s, place);
        return e->code;
    }
    if (!s->config.writer)
        return ERR_OK;
    while (snapshot_mark_committed(&files, place, e))
        if (!saver_tries_again(s, place, began, &tries, e))
            return e->code;
    if (fault_hit("snapshot.prune"))
        return ERR_OK;
    if (snapshot_prune(s->dir, place, s->config.after, s->config.keep, s->config.keep_best, &warning))
        log_warn("snapshot_prune_failed", "why=%s", LOG_Q(warning.msg));
    return ERR_OK;
}

/* Stages the state. The caller holds the lock, which is released during the copy. */
static void stage_locked(struct saver *s, struct err *e)
{
    s->copying = true;
    pthread_mutex_unlock(&s->lock);
    (void)s->config.copy(s->config.arg, s->stage, e);
    pthread_mutex_lock(&s->lock);
    s->copies = s->copying = false;
    pthread_cond_broadcast(&s->moved);
}

/* Stages the state, if the owner has not done that. */
static enum err_code saver_copy(struct saver *s, struct err *e)
{
    pthread_mutex_lock(&s->lock);
    while (s->copying) /* by the owner */
        pthread_cond_wait(&s->moved, &s->lock);
    if (s->copies)
        stage_locked(s, e);
    else
        *e = s->copied;
    pthread_mutex_unlock(&s->lock);
    return e->code;
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
        int64_t part_samples = s->part_samples;
        struct err e = {0};
        pthread_mutex_unlock(&s->lock);
        if (saver_copy(s, &e) || saver_save(s, &place, part_samples, &e))
            log_warn("snapshot_failed", "step=%lld why=%s", (long long)place.step, LOG_Q(e.msg));
        const bool tell = e.code && s->config.failed, early = tell && s->last;
        if (early)
            s->config.failed(s->config.arg, &place, &e);
        pthread_mutex_lock(&s->lock);
        s->result = e;
        s->result_place = place;
        s->busy = false;
        s->ended = true;
        pthread_cond_broadcast(&s->moved);
        /* Called after busy was cleared, because it may block, and the next snapshot need not wait for it. */
        if (!tell || early)
            continue;
        pthread_mutex_unlock(&s->lock);
        s->config.failed(s->config.arg, &place, &e);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Starts the thread with all signals blocked, because the main thread handles them. */
static int saver_start_thread(struct saver *s)
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
    free(s->parts);
    free(s->dir);
    free(s);
}

enum err_code saver_open(struct saver **out, const struct saver_config *config, struct err *e)
{
    struct saver *s = xcalloc(1, sizeof(*s));
    s->config = *config;
    s->dir = xstrdup(config->dir);
    s->floats = config->ranges ? config->ranges->floats : snapshot_floats(config->layout);
    s->bytes = (s->floats + (config->parts && config->writer ? config->layout->count : 0)) * sizeof(float);
    s->stage = calloc(1, s->bytes + 1); /* the part of a rank may be empty */
    s->parts = config->parts ? xcalloc((size_t)config->parts, sizeof(*s->parts)) : NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    int code = 0;
    if (!s->stage)
        err_set(e, ERR_RESOURCE_EXHAUSTED,
                "the copy that snapshots are written from (%zu bytes): out of memory", s->bytes);
    else if ((code = saver_start_thread(s)) != 0)
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

float *saver_model(struct saver *s)
{
    return s->parts && s->config.writer ? s->stage + s->floats : NULL;
}

struct snapshot_part *saver_parts(struct saver *s)
{
    return s->parts;
}

void saver_set_last(struct saver *s, int64_t patience_ms)
{
    pthread_mutex_lock(&s->lock);
    BUG_ON(s->busy || (patience_ms && !s->config.pause));
    s->last = true;
    s->patience_ms = patience_ms;
    pthread_mutex_unlock(&s->lock);
}

static void saver_begin(struct saver *s, const struct snapshot_place *place, int64_t part_samples,
                        bool copies)
{
    BUG_ON((place->parts && place->parts != s->config.parts) || place->divided != (s->config.ranges != NULL));
    pthread_mutex_lock(&s->lock);
    BUG_ON(s->busy);
    s->place = *place;
    s->part_samples = part_samples;
    s->copies = copies;
    s->copied = (struct err){0};
    s->busy = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

void saver_submit(struct saver *s, const struct snapshot_place *place, int64_t part_samples)
{
    saver_begin(s, place, part_samples, false);
}

void saver_submit_copy(struct saver *s, const struct snapshot_place *place)
{
    BUG_ON(place->parts || !s->config.copy);
    saver_begin(s, place, 0, true);
}

bool saver_copies(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    bool copies = s->copies;
    pthread_mutex_unlock(&s->lock);
    return copies;
}

void saver_await_copy(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    /* The thread may still report the failure of the snapshot before, which can take as long as the coordinator is away. */
    if (s->copies && !s->copying)
        stage_locked(s, &s->copied);
    while (s->copies)
        pthread_cond_wait(&s->moved, &s->lock);
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
        *place = s->result_place;
        *e = s->result;
        s->ended = false;
    }
    pthread_mutex_unlock(&s->lock);
    return ended;
}
