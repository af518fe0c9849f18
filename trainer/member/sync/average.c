/* Local SGD: each rank steps on its own gradients; every H steps parameters become the average over ranks,
 * weighted by the samples that each rank has seen in the round. With H = 1 and plain SGD that is what
 * all-reduce does, up to rounding. Optimizer state stays local.
 *
 * Weights are applied before the sum: x_i * (n_i / n). A rank that saw nothing weighs nothing. */
#include "trainer/member/sync/internal.h"

static enum err_code settle(struct sync *s, struct err *e)
{
    struct sync_state *t = &s->state;
    struct device *d = s->config.device;

    if (!t->steps)
        return ERR_OK;
    if (t->global_samples > 0) {
        d->ops->scale(d, s->config.params, s->config.count,
                      (float)((double)t->local_samples / (double)t->global_samples));
        if (coll_allreduce(s->group, s->config.params, s->config.count, e))
            return e->code;
    }
    *t = (struct sync_state){0};
    return ERR_OK;
}

static enum err_code after_step(struct sync *s, struct err *e)
{
    return s->state.steps >= s->config.every ? settle(s, e) : ERR_OK;
}

const struct sync_ops sync_average_ops = {
    .name = "average",
    .local_mean = true,
    .after_step = after_step,
    .settle = settle,
};
