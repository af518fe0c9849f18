/* Local SGD: each rank steps on its own gradients. Every H steps the parameters become the average over
 * ranks, weighted by the samples that each rank has seen in the round. With H = 1 and plain SGD the result is
 * that of all-reduce, up to rounding. Optimizer state stays local.
 *
 * Weights are applied before the sum: x_i * (n_i / n). A rank without samples has the weight 0. The sum is
 * made in the array of gradients, which is not used between two steps, so a rank whose peers vanish during
 * the sum still has its parameters. */
#include "trainer/member/sync/average.h"

/* With a round at each step, parameters are the shared model whenever somebody looks. */
static bool average_wants(const struct sync_spec *c, size_t array)
{
    (void)array;
    return c->every > 1;
}

static enum err_code average_open(struct sync *s, struct err *e)
{
    s->round = s->config.spec.every;
    s->shared = s->config.world_size > 1 ? s->arrays[SYNC_SHARED] : NULL;
    return s->round < 1 ? err_set(e, ERR_INVALID_ARGUMENT, "sync.every must be at least 1") : ERR_OK;
}

/* True in a world of one, and if no rank saw a sample. */
static bool nothing_to_average(const struct sync *s, const struct sync_state *round)
{
    return s->config.world_size == 1 || round->global_samples == 0;
}

enum err_code average_begin(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    double weight = (double)s->state.local_samples / (double)s->state.global_samples;

    if (nothing_to_average(s, &s->state)) /* no rank saw a sample, so parameters are still equal */
        return ERR_OK;
    d->ops->copy(d, s->config.grads, s->config.params, s->config.count * sizeof(float));
    d->ops->scale(d, s->config.grads, s->config.count, (float)weight);
    return coll_start(s->group, s->config.grads, s->config.count, e);
}

enum err_code average_join(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    size_t bytes = s->config.count * sizeof(float);

    if (nothing_to_average(s, &s->under_way))
        return ERR_OK;
    if (sync_await_sum(s, e))
        return e->code;
    d->ops->copy(d, s->config.params, s->config.grads, bytes);
    if (s->shared)
        d->ops->copy(d, s->shared, s->config.grads, bytes);
    return ERR_OK;
}

const struct sync_ops sync_average_ops = {
    .name = "average",
    .local_steps = true,
    .arrays = {[SYNC_SHARED] = {"shared"}},
    .wants = average_wants,
    .open = average_open,
    .begin = average_begin,
    .join = average_join,
};
