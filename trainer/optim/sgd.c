#include "trainer/optim/optim.h"

static void sgd_update(struct optim *o, const struct optim_run *run, float *params, const float *grads,
                       double lr, const float *scale)
{
    struct device_sgd h = {
        .lr = (float)lr,
        .momentum = (float)o->momentum,
        .weight_decay = run->decay ? (float)o->weight_decay : 0.0f,
        .nesterov = o->nesterov,
        .scale = scale,
        .narrowed = o->narrowed ? o->narrowed + run->offset : NULL,
    };
    float *v = o->state ? o->state + run->offset : NULL;
    o->device->ops->sgd(o->device, &h, params + run->offset, grads + run->offset, v, run->count);
}

const struct optim_ops optim_sgd = {
    .name = "sgd",
    .state_count = 1,
    .state_names = {"momentum"},
    .update = sgd_update,
};
