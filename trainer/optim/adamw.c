#include <math.h>

#include "trainer/optim/optim.h"

static struct device_adamw adamw_of(const struct optim *o, bool decay, double lr, const float *scale)
{
    return (struct device_adamw){
        .lr = (float)lr,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .eps = (float)o->eps,
        .weight_decay = decay ? (float)o->weight_decay : 0.0f,
        .correction1 = (float)(1.0 - pow(o->beta1, (double)o->steps)),
        .correction2 = (float)(1.0 - pow(o->beta2, (double)o->steps)),
        .scale = scale,
    };
}

void optim_adamw_run(const struct optim *o, const struct optim_run *run, float *params, const float *grads,
                     double lr, const float *scale, float *m, float *v)
{
    struct device_adamw h = adamw_of(o, run->decay, lr, scale);
    h.narrowed = o->narrowed ? o->narrowed + run->offset : NULL;
    o->device->ops->adamw(o->device, &h, params + run->offset, grads + run->offset, m, v, run->count);
}

void optim_adamw_ranges(const struct optim *o, float *params, const float *grads, double lr,
                        const float *scale)
{
    struct device_adamw h = adamw_of(o, true, lr, scale);
    float *v = o->ops->update_matrices ? o->state : o->state + o->count;
    o->device->ops->adamw_ranges(o->device, &h, &o->ranges, params, grads, o->state, v, o->narrowed);
}

static void adamw_update(struct optim *o, const struct optim_run *run, float *params, const float *grads,
                         double lr, const float *scale)
{
    float *m = o->state + run->offset, *v = o->state + o->count + run->offset;
    optim_adamw_run(o, run, params, grads, lr, scale, m, v);
}

const struct optim_ops optim_adamw = {
    .name = "adamw",
    .state_count = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .update = adamw_update,
};
