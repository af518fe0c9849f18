/* Sums gradients over all ranks at every step, in buckets (bucket_cut.h), while backward makes them. The bounds of buckets are the
 * same on every rank.
 *
 * With config.parts a bucket is reduced to the ranks that own a part of it, and after the optimizer's step each rank gathers
 * the other ranks' parameters, at once or in pieces that come before the next step's buckets. The tail with loss and votes is summed for all, and always as floats. */
#include "trainer/member/sync/bucket.h"
#include "trainer/member/sync/bucket_cut.h"
#include "trainer/member/sync/strategy.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct allreduce {
    struct bucket_runner *runner;
    struct bucket_cut cut;
    size_t covered;        /* floats handed over in this step */
    size_t *parts;         /* sync_config.parts; NULL: there are none */
    enum device_type wire; /* of gradients */
};

static size_t clamped(size_t x, size_t lo, size_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Sums grads[at, end). */
static void range_put(void *arg, size_t at, size_t end)
{
    struct sync *s = arg;
    struct allreduce *a = s->own;
    const size_t world = (size_t)s->config.world_size, body = s->config.count - s->config.tail;
    const size_t tail = clamped(body, at, end);
    size_t *offsets;

    if (!a->parts && a->wire == DEVICE_F32) {
        bucket_put(a->runner, s->config.grads + at, end - at, a->wire);
        return;
    }
    if (tail < end)
        bucket_put(a->runner, s->config.grads + tail, end - tail, DEVICE_F32);
    if (at == tail)
        return;
    if (!a->parts) {
        bucket_put(a->runner, s->config.grads + at, tail - at, a->wire);
        return;
    }
    offsets = xcalloc(world + 1, sizeof(*offsets));
    for (size_t r = 0; r <= world; r++)
        offsets[r] = clamped(a->parts[r], at, tail) - at;
    bucket_put_parts(a->runner, s->config.grads + at, offsets, a->wire);
}

static enum err_code allreduce_open(struct sync *s, struct err *e)
{
    struct allreduce *a = s->own = xcalloc(1, sizeof(*a));
    int thread = s->config.thread;

    (void)e;
    a->runner = bucket_open(s->group, thread < 0 ? coll_overlaps(s->group) : thread > 0);
    a->cut = (struct bucket_cut){.bucket = s->config.bucket, .put = range_put, .arg = s};
    a->wire = s->config.spec.wire == WIRE_BF16 ? DEVICE_BF16 : DEVICE_F32;
    if (s->config.parts) {
        size_t bytes = ((size_t)s->config.world_size + 1) * sizeof(*a->parts);
        a->parts = xmalloc(bytes);
        memcpy(a->parts, s->config.parts, bytes);
        /* A bucket lies in the parts of one or two ranks. Where ranks add up themselves, and nothing runs beside backward, each
         * adds up its part of the whole. */
        if (!coll_overlaps(s->group) && coll_joined_ns(s->group) < 0)
            a->cut.bucket = s->config.count;
    }
    s->config.parts = NULL; /* it was borrowed */
    return ERR_OK;
}

static void allreduce_close(struct sync *s)
{
    struct allreduce *a = s->own;

    if (a)
        bucket_close(a->runner);
    if (a)
        free(a->parts);
    free(a);
}

static void allreduce_grads_ready(struct sync *s, size_t offset, size_t count)
{
    struct allreduce *a = s->own;

    a->covered += count;
    bucket_cut_piece(&a->cut, offset, count);
}

static enum err_code allreduce_before_step(struct sync *s, struct err *e)
{
    struct allreduce *a = s->own;

    BUG_ON(a->covered && a->covered != s->config.count);
    if (a->covered)
        bucket_cut_end(&a->cut);
    else
        bucket_cut_whole(&a->cut, s->config.count); /* the caller reported no pieces */
    a->covered = 0;
    return bucket_wait(a->runner, e);
}

static enum err_code allreduce_gather(struct sync *s, struct err *e)
{
    const struct allreduce *a = s->own;

    if (!a->parts)
        return ERR_OK;
    return coll_gather(s->group, s->config.params, a->parts, e) ? e->code : coll_join(s->group, e);
}

/* Every lane ends where a part ends, so of each part a piece has one range at most. */
static void allreduce_gather_pieces(struct sync *s, const struct sync_pieces *p)
{
    const struct allreduce *a = s->own;
    const size_t world = (size_t)s->config.world_size;

    for (size_t i = 0; i < p->count; i++) {
        size_t *from = xcalloc(2 * world, sizeof(*from)), *to = from + world;

        for (size_t l = 0; l < p->lanes; l++) {
            const size_t *lane = p->cuts + l * (p->count + 1);

            for (size_t r = 0; r < world; r++) {
                const size_t lo = clamped(p->parts[r], lane[i], lane[i + 1]);
                const size_t hi = clamped(p->parts[r + 1], lane[i], lane[i + 1]);

                BUG_ON(hi > lo && to[r] > from[r]);
                if (hi > lo) {
                    from[r] = lo;
                    to[r] = hi;
                }
            }
        }
        bucket_put_gather(a->runner, p->array, from);
    }
}

static enum err_code allreduce_await_pieces(struct sync *s, size_t count, struct err *e)
{
    const struct allreduce *a = s->own;

    return bucket_wait_gathers(a->runner, count, e);
}

const struct sync_ops sync_allreduce_ops = {
    .name = "allreduce",
    .local_steps = false,
    .open = allreduce_open,
    .close = allreduce_close,
    .grads_ready = allreduce_grads_ready,
    .before_step = allreduce_before_step,
    .gather = allreduce_gather,
    .gather_pieces = allreduce_gather_pieces,
    .await_pieces = allreduce_await_pieces,
};
