#include "daemon/agent/gpu/nvml_thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#include "base/clock.h"
#include "base/mem.h"

/* The longest wait in NVML, and so the longest delay until the thread notices that it must end. */
#define SLICE_MS 100
#define CLOSE_MS 2000
#define AGAIN_FIRST_MS 250
#define AGAIN_MOST_MS 300000

/* Shared by both threads, guarded by the lock. The thread that releases it last frees it. */
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t every_ms;
    bool stop;   /* the thread must end */
    bool looked; /* there are readings */
    bool ended;
    bool tried;         /* there were readings, or a failure */
    struct err failure; /* why there are no readings yet */
    uv_async_t *bell;   /* wakes the loop; NULL: the loop has closed the thread */
    struct nvml_reading *readings;
    size_t count;
    char driver[80];
    int holders;
};

struct nvml_thread {
    struct shared *shared;
    pthread_t thread;
    bool started;
    struct nvml_reading *readings; /* the loop's copy; NULL before the first readings */
    size_t count;
    nvml_thread_fn fn;
    void *user;
};

/* The caller holds the lock, which this function unlocks. */
static void shared_let_go(struct shared *s)
{
    bool last = --s->holders == 0;

    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->readings);
    free(s);
}

/* ---- NVML's thread */

/* Keeps the Xids that the loop has not seen yet: NVML reports each only once. */
static void xids_merge(const struct nvml_reading *old, struct nvml_reading *fresh)
{
    const size_t most = ARRAY_LEN(fresh->xids) - 1;
    size_t at = 0;

    while (at < most && fresh->xids[at])
        at++;
    for (size_t i = 0; i < most && old->xids[i] && at < most; i++)
        fresh->xids[at++] = old->xids[i];
}

/* Hands the readings to the loop. False: the thread must end. */
static bool readings_hand_over(struct shared *s, struct nvml_reading *fresh)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->count; i++)
        xids_merge(&s->readings[i], &fresh[i]);
    memcpy(s->readings, fresh, s->count * sizeof(*fresh));
    s->looked = s->tried = true;
    pthread_cond_broadcast(&s->changed);
    if (s->bell)
        uv_async_send(s->bell);
    bool more = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return more;
}

static void deadline_after(int64_t ms, struct timespec *out)
{
    clock_gettime(CLOCK_MONOTONIC, out);
    ms += out->tv_nsec / 1000000;
    out->tv_sec += (time_t)(ms / 1000);
    out->tv_nsec = ms % 1000 * 1000000;
}

static void shared_rest(struct shared *s, int64_t ms)
{
    struct timespec until;

    deadline_after(ms, &until);
    pthread_mutex_lock(&s->lock);
    while (!s->stop && !pthread_cond_timedwait(&s->changed, &s->lock, &until))
        ;
    pthread_mutex_unlock(&s->lock);
}

static bool shared_stopped(struct shared *s)
{
    pthread_mutex_lock(&s->lock);
    bool stop = s->stop;
    pthread_mutex_unlock(&s->lock);
    return stop;
}

static void readings_read(struct nvml *n, struct nvml_reading *readings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        nvml_read(n, i, &readings[i]);
}

/* Waits until the next reading is due or an Xid error was reported. False: the thread must end. */
static bool next_reading_await(struct shared *s, struct nvml *n)
{
    int64_t due = clock_boot_ms() + s->every_ms, left;

    while ((left = due - clock_boot_ms()) > 0 && !shared_stopped(s)) {
        int64_t slice = left < SLICE_MS ? left : SLICE_MS;
        enum nvml_news news = nvml_wait(n, (unsigned)slice);
        if (news == NVML_NEWS)
            return true;
        if (news == NVML_DEAF)
            shared_rest(s, slice);
    }
    return !shared_stopped(s);
}

static void readings_loop(struct shared *s, struct nvml *n)
{
    struct nvml_reading *readings = xcalloc(s->count + 1, sizeof(*readings));

    do
        readings_read(n, readings, s->count);
    while (readings_hand_over(s, readings) && next_reading_await(s, n));
    free(readings);
}

/* Waits until there is a driver with GPUs. False: the thread must end. */
static bool driver_await(struct shared *s, struct nvml **n)
{
    int64_t pause = AGAIN_FIRST_MS;
    struct err e;

    while (nvml_open(n, &e)) {
        pthread_mutex_lock(&s->lock);
        s->failure = e;
        s->tried = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        shared_rest(s, pause);
        if (shared_stopped(s))
            return false;
        pause = pause * 2 < AGAIN_MOST_MS ? pause * 2 : AGAIN_MOST_MS;
    }
    return true;
}

static void *nvml_thread_main(void *arg)
{
    struct shared *s = arg;
    struct nvml *n = NULL;

    if (driver_await(s, &n)) {
        pthread_mutex_lock(&s->lock);
        s->count = nvml_count(n);
        s->readings = xcalloc(s->count + 1, sizeof(*s->readings));
        strncpy(s->driver, nvml_driver(n), sizeof(s->driver) - 1);
        pthread_mutex_unlock(&s->lock);
        readings_loop(s, n);
        nvml_close(n);
    }
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    pthread_cond_broadcast(&s->changed);
    shared_let_go(s);
    return NULL;
}

/* ---- the loop's thread */

/* Copies the readings for the loop. The caller holds the lock. */
static void readings_take(struct nvml_thread *c)
{
    struct shared *s = c->shared;

    c->count = s->count; /* does not change after the first readings */
    if (!c->readings)
        c->readings = xcalloc(c->count + 1, sizeof(*c->readings));
    memcpy(c->readings, s->readings, c->count * sizeof(*c->readings));
    for (size_t i = 0; i < s->count; i++)
        memset(s->readings[i].xids, 0, sizeof(s->readings[i].xids));
}

static void on_readings_ready(uv_async_t *bell)
{
    struct nvml_thread *c = bell->data;

    pthread_mutex_lock(&c->shared->lock);
    readings_take(c);
    pthread_mutex_unlock(&c->shared->lock);
    c->fn(c->user, c->readings, c->count);
}

/* Waits until *flag is set or the time is over. The caller holds the lock. */
static bool shared_wait(struct shared *s, const bool *flag, int64_t patience_ms)
{
    struct timespec until;

    deadline_after(patience_ms, &until);
    while (!*flag && !s->ended)
        if (pthread_cond_timedwait(&s->changed, &s->lock, &until))
            break;
    return *flag || s->ended;
}

static struct shared *shared_make(int64_t every_ms)
{
    struct shared *s = xcalloc(1, sizeof(*s));
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, &clock);
    pthread_condattr_destroy(&clock);
    s->every_ms = every_ms;
    s->holders = 2;
    return s;
}

static void thread_start(struct nvml_thread *c)
{
    struct shared *s = c->shared;
    int rc = pthread_create(&c->thread, NULL, nvml_thread_main, s);

    c->started = !rc;
    if (c->started)
        return;
    s->holders = 1;
    s->tried = s->ended = true;
    err_sys(&s->failure, rc, "thread for the GPUs");
}

struct nvml_thread *nvml_thread_open(struct uv_loop_s *loop, int64_t every_ms, nvml_thread_fn fn, void *user)
{
    struct nvml_thread *c = xcalloc(1, sizeof(*c));
    uv_async_t *bell = xcalloc(1, sizeof(*bell));

    *c = (struct nvml_thread){.shared = shared_make(every_ms), .fn = fn, .user = user};
    BUG_ON(uv_async_init(loop, bell, on_readings_ready));
    bell->data = c;
    c->shared->bell = bell;
    thread_start(c);
    return c;
}

enum err_code nvml_thread_wait(struct nvml_thread *c, int64_t patience_ms,
                               const struct nvml_reading **readings, size_t *count, struct err *e)
{
    struct shared *s = c->shared;
    enum err_code code = ERR_OK;

    pthread_mutex_lock(&s->lock);
    if (!shared_wait(s, &s->tried, patience_ms))
        code = err_set(e, ERR_DEADLINE_EXCEEDED, "NVML did not answer within %.1f s",
                       (double)patience_ms / 1000);
    else if (!s->looked)
        code = (*e = s->failure).code;
    else
        readings_take(c);
    pthread_mutex_unlock(&s->lock);
    if (code)
        return code;
    *readings = c->readings;
    *count = c->count;
    return ERR_OK;
}

static void bell_free(uv_handle_t *handle)
{
    free(handle);
}

void nvml_thread_close(struct nvml_thread *c)
{
    if (!c)
        return;
    struct shared *s = c->shared;

    pthread_mutex_lock(&s->lock);
    s->stop = true;
    uv_close((uv_handle_t *)steal(s->bell), bell_free);
    pthread_cond_broadcast(&s->changed);
    bool ended = shared_wait(s, &s->ended, CLOSE_MS);
    shared_let_go(s);
    /* A thread that has ended is joined: else the process could end while the C library still frees what
     * belongs to the thread. */
    if (c->started)
        BUG_ON(ended ? pthread_join(c->thread, NULL) : pthread_detach(c->thread));
    free(c->readings);
    free(c);
}

const char *nvml_thread_driver(const struct nvml_thread *c)
{
    return c->shared->driver; /* needs no lock: written once, before the first readings */
}
