/* Sums gradients over all ranks at every step, in buckets, while backward makes them. Backward goes from the
 * end of the array to its start, so a piece usually ends where the piece before it begins. Pieces are
 * collected until they make a bucket. The bounds of buckets follow from the pieces alone, so they are the
 * same on every rank. */
#include "trainer/member/sync/bucket.h"
#include "trainer/member/sync/strategy.h"

#include "base/mem.h"

#include <stdlib.h>

struct allreduce {
    struct bucket_runner *runner;
    /* Offset and number of floats of the pieces collected for the next bucket. */
    size_t pending, pending_count;
    size_t covered; /* floats handed over in this step */
};

static enum err_code allreduce_open(struct sync *s, struct err *e)
{
    struct allreduce *a = s->own = xcalloc(1, sizeof(*a));
    int thread = s->config.thread;

    (void)e;
    a->runner = bucket_open(s->group, thread < 0 ? coll_overlaps(s->group) : thread > 0);
    return ERR_OK;
}

static void allreduce_close(struct sync *s)
{
    struct allreduce *a = s->own;

    if (a)
        bucket_close(a->runner);
    free(a);
}

static void pending_flush(struct sync *s, struct allreduce *a)
{
    if (a->pending_count)
        bucket_put(a->runner, s->config.grads + a->pending, a->pending_count);
    a->pending_count = 0;
}

static void allreduce_grads_ready(struct sync *s, size_t offset, size_t count)
{
    struct allreduce *a = s->own;
    bool below = offset + count == a->pending, above = offset == a->pending + a->pending_count;

    if (a->pending_count && !below && !above)
        pending_flush(s, a);
    if (!a->pending_count || below)
        a->pending = offset;
    a->pending_count += count;
    a->covered += count;
    if (a->pending_count >= s->config.bucket)
        pending_flush(s, a);
}

static enum err_code allreduce_before_step(struct sync *s, struct err *e)
{
    struct allreduce *a = s->own;

    BUG_ON(a->covered && a->covered != s->config.count);
    if (a->covered)
        pending_flush(s, a);
    /* If the caller reported no pieces, the whole array is summed in buckets, from the end. */
    for (size_t left = a->covered ? 0 : s->config.count; left;) {
        size_t part = left < s->config.bucket ? left : s->config.bucket;

        left -= part;
        bucket_put(a->runner, s->config.grads + left, part);
    }
    a->covered = 0;
    return bucket_wait(a->runner, e);
}

const struct sync_ops sync_allreduce_ops = {
    .name = "allreduce",
    .local_steps = false,
    .open = allreduce_open,
    .close = allreduce_close,
    .grads_ready = allreduce_grads_ready,
    .before_step = allreduce_before_step,
};
