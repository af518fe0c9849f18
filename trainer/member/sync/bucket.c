#include "trainer/member/sync/bucket.h"

#include "base/mem.h"
#include "trainer/device/comm.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct bucket {
    float *data;
    size_t count;
    size_t *offsets; /* owned; NULL: all ranks get the whole sum. Of a gather: both ends of the parts */
    enum device_type wire;
    bool gathers;
    int number; /* of a gather since the last wait */
};

struct bucket_runner {
    struct coll_group *group;
    bool threaded;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct bucket *queue; /* buckets [done, put) are not summed yet; bucket_wait empties the queue */
    size_t done, put, cap;
    int gathers; /* since the last bucket_wait; the owner's */
    bool closing;
    struct err error; /* the first error */
};

static enum err_code bucket_sum(struct coll_group *g, const struct bucket *b, struct err *e)
{
    const bool half = b->wire == DEVICE_BF16;

    if (b->gathers)
        return coll_gather_ranges(g, b->data, b->offsets, b->offsets + b->count, e)
                   ? e->code
                   : coll_mark(g, b->number, e);
    if (b->offsets)
        return (half ? coll_reduce_scatter_bf16 : coll_reduce_scatter)(g, b->data, b->offsets, e);
    return (half ? coll_start_bf16 : coll_start)(g, b->data, b->count, e);
}

/* Only the thread that runs buckets sets r->error; with a thread, others read it under the lock. After an error the group
 * is over, so the remaining buckets only leave the queue. */
static struct err run_one(const struct bucket_runner *r, struct bucket b)
{
    struct err e = r->error;

    if (!e.code)
        (void)!bucket_sum(r->group, &b, &e);
    free(b.offsets);
    return e;
}

static void *bucket_serve(void *arg)
{
    struct bucket_runner *r = arg;

    pthread_mutex_lock(&r->lock);
    while (!r->closing) {
        if (r->done == r->put) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        struct bucket b = r->queue[r->done];
        pthread_mutex_unlock(&r->lock);
        struct err e = run_one(r, b);
        pthread_mutex_lock(&r->lock);
        r->error = e;
        if (++r->done == r->put || b.gathers)
            pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Starts the thread with all signals blocked, because the owner's thread handles them. */
static bool bucket_start(struct bucket_runner *r)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&r->thread, NULL, bucket_serve, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0;
}

struct bucket_runner *bucket_open(struct coll_group *group, bool thread)
{
    struct bucket_runner *r = xcalloc(1, sizeof(*r));

    r->group = group;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->threaded = thread && bucket_start(r); /* without a thread, bucket_put runs each bucket at once */
    return r;
}

void bucket_close(struct bucket_runner *r)
{
    if (!r)
        return;
    if (r->threaded) {
        pthread_mutex_lock(&r->lock);
        r->closing = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        pthread_join(r->thread, NULL);
    }
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    for (size_t i = r->done; i < r->put; i++)
        free(r->queue[i].offsets);
    free(r->queue);
    free(r);
}

static void queue_put(struct bucket_runner *r, struct bucket b)
{
    if (!r->threaded) {
        r->error = run_one(r, b);
        return;
    }
    pthread_mutex_lock(&r->lock);
    r->queue = array_grow(r->queue, r->put, &r->cap, sizeof(b));
    r->queue[r->put++] = b;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void bucket_put(struct bucket_runner *r, float *data, size_t count, enum device_type wire)
{
    queue_put(r, (struct bucket){.data = data, .count = count, .wire = wire});
}

void bucket_put_parts(struct bucket_runner *r, float *data, size_t *offsets, enum device_type wire)
{
    queue_put(r, (struct bucket){.data = data, .offsets = offsets, .wire = wire});
}

void bucket_put_gather(struct bucket_runner *r, float *data, size_t *ranges)
{
    BUG_ON(r->gathers == COMM_MARKS);
    queue_put(r, (struct bucket){.data = data,
                                 .count = (size_t)coll_world_size(r->group),
                                 .offsets = ranges,
                                 .gathers = true,
                                 .number = r->gathers++});
}

enum err_code bucket_wait_gathers(struct bucket_runner *r, size_t count, struct err *e)
{
    BUG_ON(count > (size_t)r->gathers);
    if (count == 0)
        return ERR_OK;
    pthread_mutex_lock(&r->lock);
    while (r->threaded && r->done < count && r->done < r->put)
        pthread_cond_wait(&r->changed, &r->lock);
    const enum err_code code = r->error.code;
    if (code)
        *e = r->error;
    pthread_mutex_unlock(&r->lock);
    return code ? code : coll_join_mark(r->group, (int)count - 1, e);
}

enum err_code bucket_wait(struct bucket_runner *r, struct err *e)
{
    pthread_mutex_lock(&r->lock);
    while (r->done < r->put)
        pthread_cond_wait(&r->changed, &r->lock);
    r->done = r->put = 0;
    r->gathers = 0;
    if (r->error.code)
        *e = r->error;
    pthread_mutex_unlock(&r->lock);
    return r->error.code ? r->error.code : coll_join(r->group, e);
}
