/* Local SGD: each rank steps on its own gradients. Every H steps the parameters become the average over
 * ranks, weighted by the samples that each rank has seen in the round. With H = 1 and plain SGD the result is
 * that of all-reduce, up to rounding. Optimizer state stays local.
 *
 * Weights are applied before the sum: x_i * (n_i / n). A rank without samples has the weight 0. The sum is
 * made in the array of gradients, which is not used between two steps, so a rank whose peers vanish during
 * the sum still has its parameters. The last mean is kept also with a round at each step. A rank that lost its peers
 * during the sum takes the mean from a rank that has finished the sum.
 *
 * If a rank's parameters are not finite, the mean is not applied, and all ranks fail.
 *
 * A run that continues the snapshot of another strategy may begin with parameters that differ between ranks (uneven). The first
 * average makes them equal. */
#include "trainer/member/sync/average.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/member/sync/squares.h"

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

/* There is only one rank, or parameters are equal: no rank saw a sample in the round, and they were equal before it. */
static bool nothing_to_average(const struct sync *s, const struct sync_state *round)
{
    return s->config.world_size == 1 || (round->global_samples == 0 && !s->uneven);
}

/* If nobody saw a sample, all weigh the same. */
static double average_weight(const struct sync *s)
{
    const struct sync_state *round = &s->state;

    return round->global_samples > 0 ? (double)round->local_samples / (double)round->global_samples
                                     : 1.0 / s->config.world_size;
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

/* The array's floats that are weighted: the parameters and the loss behind them. A vote counts also if its rank saw no samples. */
static size_t weighted_floats(const struct sync *s)
{
    return s->config.tail ? s->config.count - s->config.tail + 1 : s->config.count;
}

/* The float that brings the sum of the members' weighted lengths; NULL: nothing is measured. */
static float *lengths_slot(const struct sync *s, float *array)
{
    return s->shared && s->config.tail ? array + (s->config.count - 1) : NULL;
}

enum err_code average_begin(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    double weight = average_weight(s), squares = 0.0;

    if (nothing_to_average(s, &s->state))
        return ERR_OK;
    float *slot = lengths_slot(s, s->config.grads), *params = s->config.params, *sum = s->config.grads;
    size_t all = s->config.count, done = 0;

    if (slot && d->host) {
        done = all - s->config.tail; /* the tail does not count */
        squares = squares_scaled(sum, params, s->shared, (float)weight, done);
    } else if (slot) {
        squares = device_squares(s);
    }
    d->ops->copy(d, sum + done, params + done, (all - done) * sizeof(float));
    d->ops->scale(d, sum + done, weighted_floats(s) - done, (float)weight);
    if (slot)
        sync_put_float(s, slot, (float)(weight * sqrt(squares)));
    int64_t began = clock_mono_ns();
    enum err_code rc = coll_start(s->group, s->config.grads, s->config.count, e);

    s->made.wait_ns += (uint64_t)(clock_mono_ns() - began);
    return rc;
}

static bool params_finite(const struct sync *s)
{
    struct device *d = s->config.device;
    const float *params = s->config.params;
    const size_t all = s->config.count - s->config.tail;
    float room[1024];
    bool finite = true;

    if (d->host)
        return floats_finite(params, all);
    for (size_t at = 0, count; at < all; at += count) {
        count = all - at < ARRAY_LEN(room) ? all - at : ARRAY_LEN(room);
        d->ops->download(d, room, params + at, count * sizeof(float));
        finite &= floats_finite(room, count);
    }
    return finite;
}

/* The sum of lengths is finite if all ranks' parameters are, except for very large ones. If it is not, each rank says whether its own
 * are. All ranks have the same sum, so either all come here or none does, and a round of finite parameters costs nothing more. */
static enum err_code average_check(struct sync *s, double lengths, struct err *e)
{
    const int world = s->config.world_size;

    if (isfinite(lengths))
        return ERR_OK;
    bool mine = params_finite(s), *all = xcalloc((size_t)world, sizeof(*all));
    enum err_code code = coll_allgather(s->group, &mine, sizeof(mine), all, e);

    if (!code && !mine)
        code = sync_not_finite(s, s->config.rank, e);
    for (int r = 0; !code && r < world; r++)
        if (!all[r])
            code = sync_not_finite(s, r, e);
    free(all);
    return code;
}

enum err_code average_join(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    float *params = s->config.params, *sum = s->config.grads;
    const float *slot = lengths_slot(s, sum);
    size_t all = s->config.count, done = 0;
    double squares = 0.0, lengths = 0.0;

    if (nothing_to_average(s, &s->under_way)) {
        s->uneven = false;
        return ERR_OK;
    }
    if (sync_await_sum(s, e))
        return e->code;
    if (slot)
        lengths = (double)sync_get_float(s, slot);
    if (average_check(s, lengths, e))
        return e->code;
    sync_test_kill(s, "commit");
    if (slot && d->host) {
        done = all - s->config.tail;
        squares = squares_moved(params, sum, s->shared, done);
    }
    d->ops->copy(d, params + done, sum + done, (all - done) * sizeof(float));
    if (slot)
        sync_measure(s, d->host ? squares : device_squares(s), lengths);
    if (s->shared)
        d->ops->copy(d, s->shared + done, params + done, (all - done) * sizeof(float));
    s->uneven = false;
    return ERR_OK;
}

void average_take(struct sync *s, const struct sync_state *in)
{
    struct device *d = s->config.device;

    (void)in;
    BUG_ON(!s->shared);
    d->ops->copy(d, s->config.params, s->shared, s->config.count * sizeof(float));
    s->uneven = false;
}

const struct sync_ops sync_average_ops = {
    .name = "average",
    .local_steps = true,
    .arrays = {[SYNC_SHARED] = {"shared"}},
    .open = average_open,
    .check_tune = average_check_tune,
    .tuned = average_tuned,
    .begin = average_begin,
    .join = average_join,
    .take = average_take,
};
