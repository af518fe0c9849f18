/* Local SGD: each rank steps on its own gradients. Every H steps the parameters become the average over
 * ranks, weighted by the samples that each rank has seen in the round. With H = 1 and plain SGD the result is
 * that of all-reduce, up to rounding. Optimizer state stays local.
 *
 * Weights are applied before the sum: x_i * (n_i / n). A rank without samples has the weight 0. The sum is
 * made in the array of gradients, which is not used between two steps, so a rank whose peers vanish during
 * the sum still has its parameters. */
#include "trainer/member/sync/average.h"

#include <math.h>

#include "base/clock.h"
#include "trainer/member/sync/squares.h"

/* With a round at each step, parameters are the shared model whenever somebody looks. */
static bool average_wants(const struct sync_spec *c, size_t array)
{
    (void)array;
    return c->every > 1 || c->every_ms;
}

static enum err_code average_check_tune(const struct sync *s, const struct sync_spec *to, struct err *e)
{
    (void)s;
    return to->every < 1 ? err_set(e, ERR_INVALID_ARGUMENT, "sync.every must be at least 1") : ERR_OK;
}

static void average_tuned(struct sync *s)
{
    s->round = s->config.spec.every;
}

static enum err_code average_open(struct sync *s, struct err *e)
{
    average_tuned(s);
    s->shared = s->config.world_size > 1 ? s->arrays[SYNC_SHARED] : NULL;
    return average_check_tune(s, &s->config.spec, e);
}

/* True in a world of one, and if no rank saw a sample. */
static bool nothing_to_average(const struct sync *s, const struct sync_state *round)
{
    return s->config.world_size == 1 || round->global_samples == 0;
}

/* On the host, what is measured is also copied while it is in the cache. A device gets each array whole. */
#define PIECE ((size_t)1 << 16)
static size_t piece_count(const struct sync *s, size_t at)
{
    size_t rest = s->config.count - at;

    return s->config.device->host && rest > PIECE ? PIECE : rest;
}

/* Of shared - params, on a device that is not the host. The gradients give room for the difference. */
static double device_squares(const struct sync *s)
{
    struct device *d = s->config.device;
    size_t count = s->config.count - s->config.tail;

    d->ops->copy(d, s->config.grads, s->config.params, count * sizeof(float));
    d->ops->scale(d, s->config.grads, count, -1.0f);
    d->ops->add(d, s->config.grads, s->shared, count);
    return squares_on_device(d, s->config.grads, count, s->squares_room);
}

/* Of shared - x in a piece of the arrays, in the host's memory. The tail does not count. */
static double piece_squares(const struct sync *s, const float *x, size_t at, size_t count)
{
    size_t all = s->config.count - s->config.tail, end = at + count < all ? at + count : all;

    return at < end ? squares_of_difference(s->shared + at, x + at, end - at) : 0.0;
}

/* The float that brings the sum of the members' weighted lengths; NULL: nothing is measured. */
static float *lengths_slot(const struct sync *s, float *array)
{
    return s->shared && s->config.tail ? array + (s->config.count - 1) : NULL;
}

enum err_code average_begin(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    double weight = (double)s->state.local_samples / (double)s->state.global_samples;

    if (nothing_to_average(s, &s->state)) /* no rank saw a sample, so parameters are still equal */
        return ERR_OK;
    float *slot = lengths_slot(s, s->config.grads), *params = s->config.params, *sum = s->config.grads;
    double squares = slot && !d->host ? device_squares(s) : 0.0;

    for (size_t at = 0, n; at < s->config.count; at += n) {
        n = piece_count(s, at);
        if (slot && d->host)
            squares += piece_squares(s, params, at, n);
        d->ops->copy(d, sum + at, params + at, n * sizeof(float));
        d->ops->scale(d, sum + at, n, (float)weight);
    }
    if (slot)
        sync_put_float(s, slot, (float)(weight * sqrt(squares)));
    int64_t began = clock_mono_ns();
    enum err_code rc = coll_start(s->group, s->config.grads, s->config.count, e);

    s->made.wait_ns += (uint64_t)(clock_mono_ns() - began);
    return rc;
}

enum err_code average_join(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    float *params = s->config.params, *sum = s->config.grads;
    const float *slot = lengths_slot(s, params);
    double squares = 0.0;

    if (nothing_to_average(s, &s->under_way))
        return ERR_OK;
    if (sync_await_sum(s, e))
        return e->code;
    for (size_t at = 0, n; at < s->config.count; at += n) {
        n = piece_count(s, at);
        if (slot && d->host)
            squares += piece_squares(s, sum, at, n);
        d->ops->copy(d, params + at, sum + at, n * sizeof(float));
        if (s->shared && d->host)
            d->ops->copy(d, s->shared + at, sum + at, n * sizeof(float));
    }
    if (slot)
        sync_measure(s, d->host ? squares : device_squares(s), (double)sync_get_float(s, slot));
    if (s->shared && !d->host)
        d->ops->copy(d, s->shared, params, s->config.count * sizeof(float));
    return ERR_OK;
}

const struct sync_ops sync_average_ops = {
    .name = "average",
    .local_steps = true,
    .arrays = {[SYNC_SHARED] = {"shared"}},
    .wants = average_wants,
    .open = average_open,
    .check_tune = average_check_tune,
    .tuned = average_tuned,
    .begin = average_begin,
    .join = average_join,
};
