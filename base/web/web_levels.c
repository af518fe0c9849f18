#include "base/web/web_levels.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#define GONE_MOST 256 /* frames "gone" that are kept for viewers that reconnect */

struct level {
    enum web_topic topic;
    int64_t number;
    char *text;
    uint64_t revision;
    struct web_frame *frame;
    size_t data_at, data_size; /* of the JSON in the frame */
    bool marked;               /* not put since the mark */
    bool gone;
};

struct web_levels {
    pthread_mutex_t lock;
    pthread_cond_t entered;
    struct level *list; /* by revision */
    size_t count, cap;
    uint64_t first;     /* the revision before this program's first one */
    uint64_t revision;  /* the newest */
    uint64_t forgotten; /* viewers that have not seen this revision may have missed a frame "gone" */
    struct web_viewer *viewers;
    size_t viewer_count;
    bool has_entered;
};

struct web_levels *web_levels_create(void)
{
    struct web_levels *l = xcalloc(1, sizeof(*l));
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&l->entered, &attributes);
    pthread_condattr_destroy(&attributes);
    /* The first revision is the present time, so that a Last-Event-ID of an earlier server process is recognised as
     * such. */
    l->first = l->revision = l->forgotten = (uint64_t)clock_wall_ms() * 1000;
    return l;
}

static void frame_unref(struct web_frame *frame)
{
    if (frame && --frame->references == 0)
        free(frame);
}

void web_levels_free(struct web_levels *l)
{
    if (!l)
        return;
    BUG_ON(l->viewers);
    for (size_t i = 0; i < l->count; i++) {
        frame_unref(l->list[i].frame);
        free(l->list[i].text);
    }
    free(l->list);
    pthread_cond_destroy(&l->entered);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static struct web_frame *frame_make(uint64_t revision, const char *name, const char *data, size_t size,
                                    size_t *data_at)
{
    char head[96];
    const int len =
        snprintf(head, sizeof(head), "id: %llu\nevent: %.40s\ndata: ", (unsigned long long)revision, name);
    struct web_frame *frame = xmalloc(sizeof(*frame) + (size_t)len + size + 2);
    frame->references = 1;
    frame->size = (size_t)len + size + 2;
    memcpy(frame->data, head, (size_t)len);
    memcpy(frame->data + len, data, size);
    memcpy(frame->data + (size_t)len + size, "\n\n", 2);
    *data_at = (size_t)len;
    return frame;
}

static bool level_is(const struct level *at, enum web_topic topic, int64_t number, const char *text)
{
    return at->topic == topic && at->number == number && strcmp(at->text, text) == 0;
}

static struct level *level_find(struct web_levels *l, enum web_topic topic, int64_t number, const char *text)
{
    for (size_t i = l->count; i-- > 0;)
        if (level_is(&l->list[i], topic, number, text))
            return &l->list[i];
    return NULL;
}

static void levels_wake(struct web_levels *l)
{
    for (struct web_viewer *v = l->viewers; v; v = v->next) {
        void (*wake)(struct web_viewer *) = v->wake;
        v->wake = NULL;
        if (wake)
            wake(v);
    }
}

/* Gives the level a new revision and frame, and moves it to the end of the list, which is ordered by revision. */
static void level_renew(struct web_levels *l, struct level *at, const char *name, const char *data,
                        size_t size)
{
    const size_t i = (size_t)(at - l->list);
    struct level moved = *at;
    frame_unref(moved.frame);
    moved.revision = ++l->revision;
    moved.frame = frame_make(moved.revision, name, data, size, &moved.data_at);
    moved.data_size = size;
    moved.marked = false;
    memmove(at, at + 1, (l->count - i - 1) * sizeof(*at));
    l->list[l->count - 1] = moved;
}

uint64_t web_levels_put(struct web_levels *l, enum web_topic topic, int64_t number, const char *text,
                        const char *name, const struct buf *data, bool same)
{
    const char *json = data->data ? data->data : "";
    const size_t size = strcspn(json, "\n"); /* JSON has no line end within it */
    pthread_mutex_lock(&l->lock);
    struct level *at = level_find(l, topic, number, text);
    if (!at) {
        l->list = array_grow(l->list, l->count, &l->cap, sizeof(*l->list));
        at = &l->list[l->count++];
        *at = (struct level){.topic = topic, .number = number, .text = xstrdup(text)};
    }
    const bool unchanged = same && at->frame && !at->gone && at->data_size == size &&
                           memcmp(at->frame->data + at->data_at, json, size) == 0;
    at->marked = at->gone = false;
    uint64_t revision = at->revision;
    if (!unchanged) {
        level_renew(l, at, name, json, size);
        revision = l->revision;
        levels_wake(l);
    }
    pthread_mutex_unlock(&l->lock);
    return revision;
}

uint64_t web_levels_revision(struct web_levels *l, enum web_topic topic, int64_t number, const char *text)
{
    pthread_mutex_lock(&l->lock);
    const struct level *at = level_find(l, topic, number, text);
    const uint64_t revision = at && !at->gone ? at->revision : 0;
    pthread_mutex_unlock(&l->lock);
    return revision;
}

void web_levels_mark(struct web_levels *l, enum web_topic topic)
{
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->count; i++)
        if (l->list[i].topic == topic) /* topics of other kinds may be marked already */
            l->list[i].marked = !l->list[i].gone;
    pthread_mutex_unlock(&l->lock);
}

void web_levels_keep(struct web_levels *l, enum web_topic topic, int64_t number)
{
    pthread_mutex_lock(&l->lock);
    struct level *at = level_find(l, topic, number, "");
    if (at)
        at->marked = false;
    pthread_mutex_unlock(&l->lock);
}

static void level_remove(struct web_levels *l, size_t i)
{
    frame_unref(l->list[i].frame);
    free(l->list[i].text);
    memmove(&l->list[i], &l->list[i + 1], (l->count - i - 1) * sizeof(*l->list));
    l->count--;
}

static void level_end(struct web_levels *l, size_t i)
{
    struct level *at = &l->list[i];
    CLEANUP(buf_release) struct buf data = {0};
    struct jout o = {.buf = &data};
    jout_open(&o, NULL, '{');
    if (at->topic == TOPIC_NODE)
        jout_text(&o, "node", at->text);
    else
        jout_int(&o, "job", at->number);
    jout_close(&o, '}');
    at->gone = true;
    level_renew(l, at, "gone", data.data, data.len);
}

/* A viewer that was disconnected while a frame "gone" was removed must load the whole state again. */
static void levels_limit_gone(struct web_levels *l)
{
    size_t gone = 0;
    for (size_t i = l->count; i-- > 0;) {
        if (!l->list[i].gone || ++gone <= GONE_MOST)
            continue;
        if (l->list[i].revision > l->forgotten)
            l->forgotten = l->list[i].revision;
        level_remove(l, i);
    }
}

void web_levels_sweep(struct web_levels *l, enum web_topic topic)
{
    const bool tells = topic == TOPIC_JOB || topic == TOPIC_NODE;
    bool any = false;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->count;) {
        if (l->list[i].topic != topic || !l->list[i].marked) {
            i++;
        } else if (tells) {
            level_end(l, i); /* moves it to the end, where its mark is cleared */
            any = true;
        } else {
            level_remove(l, i);
        }
    }
    levels_limit_gone(l);
    if (any)
        levels_wake(l);
    pthread_mutex_unlock(&l->lock);
}

void web_levels_tick(struct web_levels *l)
{
    pthread_mutex_lock(&l->lock);
    levels_wake(l);
    pthread_mutex_unlock(&l->lock);
}

size_t web_levels_wait_viewer(struct web_levels *l, int64_t wait_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += wait_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&l->lock);
    while (!l->viewer_count && pthread_cond_timedwait(&l->entered, &l->lock, &until) != ETIMEDOUT)
        ;
    const size_t count = l->viewer_count;
    pthread_mutex_unlock(&l->lock);
    return count;
}

bool web_levels_take_entered(struct web_levels *l)
{
    pthread_mutex_lock(&l->lock);
    const bool entered = l->has_entered;
    l->has_entered = false;
    pthread_mutex_unlock(&l->lock);
    return entered;
}

static bool jobs_have(const int64_t *jobs, size_t count, int64_t job)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i] == job)
            return true;
    return false;
}

void web_levels_wanted(struct web_levels *l, bool logs, size_t most, int64_t **jobs, size_t *count)
{
    size_t cap = 0;
    *jobs = NULL;
    *count = 0;
    pthread_mutex_lock(&l->lock);
    for (const struct web_viewer *v = l->viewers; v; v = v->next) {
        const int64_t *list = logs ? v->logs : v->jobs;
        const size_t wanted = logs ? v->log_count : v->job_count;
        for (size_t i = 0; i < wanted && *count < most; i++) {
            if (jobs_have(*jobs, *count, list[i]))
                continue;
            *jobs = array_grow(*jobs, *count, &cap, sizeof(**jobs));
            (*jobs)[(*count)++] = list[i];
        }
    }
    pthread_mutex_unlock(&l->lock);
}

/* ---- viewers */

static bool viewer_wants(struct web_levels *l, const struct web_viewer *v, const struct level *at)
{
    const bool named = jobs_have(v->jobs, v->job_count, at->number);
    const struct level *detail;
    switch (at->topic) {
    case TOPIC_JOB:
        if (!named || at->gone)
            return true;
        /* More jobs may be named than the server follows. */
        detail = level_find(l, TOPIC_JOB_DETAIL, at->number, "");
        return !detail || detail->gone;
    case TOPIC_JOB_DETAIL:
    case TOPIC_POINTS:
    case TOPIC_USAGE:
    case TOPIC_EVENTS:
        return named;
    case TOPIC_LOG:
        return jobs_have(v->logs, v->log_count, at->number);
    default:
        return true;
    }
}

void web_levels_enter(struct web_levels *l, struct web_viewer *v, const char *last_id)
{
    char *end = NULL;
    pthread_mutex_lock(&l->lock);
    errno = 0;
    const uint64_t seen = last_id && *last_id >= '0' && *last_id <= '9' ? strtoull(last_id, &end, 10) : 0;
    const bool known = end && !*end && !errno && seen >= l->forgotten && seen <= l->revision;
    v->reset = last_id && !known;
    v->revision = known ? seen : l->first;
    v->born = known ? 0 : l->revision;
    v->next = l->viewers;
    l->viewers = v;
    l->viewer_count++;
    l->has_entered = true;
    pthread_cond_broadcast(&l->entered);
    pthread_mutex_unlock(&l->lock);
}

void web_levels_leave(struct web_levels *l, struct web_viewer *v)
{
    pthread_mutex_lock(&l->lock);
    struct web_viewer **at = &l->viewers;
    while (*at && *at != v)
        at = &(*at)->next;
    BUG_ON(!*at);
    *at = v->next;
    l->viewer_count--;
    pthread_mutex_unlock(&l->lock);
}

/* The place in the list of the first level with a later revision. */
static size_t levels_after(const struct web_levels *l, uint64_t revision)
{
    size_t low = 0, high = l->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (l->list[middle].revision > revision)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct web_frame *web_levels_next(struct web_levels *l, struct web_viewer *v,
                                  void (*wait)(struct web_viewer *v))
{
    struct web_frame *frame = NULL;
    size_t ignored;
    pthread_mutex_lock(&l->lock);
    if (v->reset) {
        v->reset = false;
        frame = frame_make(v->revision, "reset", "{}", 2, &ignored);
    }
    for (size_t i = levels_after(l, v->revision); i < l->count && !frame; i++) {
        const struct level *at = &l->list[i];
        if (viewer_wants(l, v, at) && !(at->gone && at->revision <= v->born)) {
            frame = at->frame;
            frame->references++;
        }
        v->revision = at->revision;
    }
    if (!frame && wait)
        wait(v);
    pthread_mutex_unlock(&l->lock);
    return frame;
}

void web_levels_return(struct web_levels *l, struct web_frame *frame)
{
    pthread_mutex_lock(&l->lock);
    frame_unref(frame);
    pthread_mutex_unlock(&l->lock);
}
