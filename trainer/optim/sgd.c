#include "trainer/optim/optim.h"

static void sgd_update(struct optim *o, float *params, const float *grads, double lr, double scale)
{
    struct device_sgd h = {
        .lr = (float)lr,
        .momentum = (float)o->momentum,
        .weight_decay = (float)o->weight_decay,
        .nesterov = o->nesterov,
        .scale = (float)scale,
    };
    o->device->ops->sgd(o->device, &h, params, grads, o->state, o->count);
}

const struct optim_ops optim_sgd = {
    .name = "sgd",
    .state_count = 1,
    .state_names = {"momentum"},
    .update = sgd_update,
};
