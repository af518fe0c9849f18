/* Local SGD: each rank steps on its own gradients; every H steps parameters become the average over ranks,
 * weighted by the samples that each rank has seen in the round. With H = 1 and plain SGD that is what
 * all-reduce does, up to rounding. Optimizer state stays local.
 *
 * Weights are applied before the sum: x_i * (n_i / n). A rank that saw nothing weighs nothing. The sum is
 * made in an array of its own, so that a rank whose peers vanish in the middle still has its parameters. */
#include "trainer/member/sync/strategy.h"

enum { EXCHANGE };

static enum err_code average_open(struct sync *s, struct err *e)
{
    s->round = s->config.spec.every;
    return s->round < 1 ? err_set(e, ERR_INVALID_ARGUMENT, "sync.every must be at least 1") : ERR_OK;
}

static enum err_code average_begin(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    double weight = (double)s->state.local_samples / (double)s->state.global_samples;

    if (s->state.global_samples == 0) /* nobody saw a sample: parameters are equal still */
        return ERR_OK;
    d->ops->copy(d, s->arrays[EXCHANGE], s->config.params, s->config.count * sizeof(float));
    d->ops->scale(d, s->arrays[EXCHANGE], s->config.count, (float)weight);
    return coll_start(s->group, s->arrays[EXCHANGE], s->config.count, e);
}

static enum err_code average_join(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;

    if (s->under_way.global_samples == 0)
        return ERR_OK;
    if (coll_join(s->group, e))
        return e->code;
    d->ops->copy(d, s->config.params, s->arrays[EXCHANGE], s->config.count * sizeof(float));
    return ERR_OK;
}

const struct sync_ops sync_average_ops = {
    .name = "average",
    .local_steps = true,
    .arrays = {[EXCHANGE] = {"exchange", .kept = false}},
    .open = average_open,
    .begin = average_begin,
    .join = average_join,
};
