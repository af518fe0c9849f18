/* Gradients are summed over all ranks at every step, in buckets, as backward makes them. Backward goes from
 * the end of the array to its start, so a piece mostly touches the one before it from below; pieces are
 * gathered until they make a bucket. Bucket bounds follow from the pieces alone and so are the same on every
 * rank. */
#include "trainer/member/sync/internal.h"

static void flush(struct sync *s)
{
    if (s->pending_count)
        bucket_put(s->runner, s->config.grads + s->pending, s->pending_count);
    s->pending_count = 0;
}

static void grads_ready(struct sync *s, size_t offset, size_t count)
{
    bool below = offset + count == s->pending, above = offset == s->pending + s->pending_count;

    if (s->pending_count && !below && !above)
        flush(s);
    if (!s->pending_count || below)
        s->pending = offset;
    s->pending_count += count;
    s->covered += count;
    if (s->pending_count >= s->config.bucket)
        flush(s);
}

/* A caller that told nothing: the whole array in buckets, from the end. */
static void put_all(struct sync *s)
{
    size_t left = s->config.count;

    while (left) {
        size_t part = left < s->config.bucket ? left : s->config.bucket;

        left -= part;
        bucket_put(s->runner, s->config.grads + left, part);
    }
}

static enum err_code before_step(struct sync *s, struct err *e)
{
    BUG_ON(s->covered && s->covered != s->config.count);
    if (s->covered)
        flush(s);
    else
        put_all(s);
    s->covered = 0;
    return bucket_wait(s->runner, e);
}

const struct sync_ops sync_allreduce_ops = {
    .name = "allreduce",
    .local_mean = false,
    .grads_ready = grads_ready,
    .before_step = before_step,
};
