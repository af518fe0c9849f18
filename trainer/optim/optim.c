#include "trainer/optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

enum err_code optim_open(struct optim **out, const struct train_spec *spec, size_t count,
                         struct device *device, struct err *e)
{
    const struct optim_ops *ops = spec->optimizer.type == OPTIMIZER_SGD ? &optim_sgd : &optim_adamw;
    struct optim *o = xcalloc(1, sizeof(*o));
    *o = (struct optim){
        .ops = ops,
        .device = device,
        .count = count,
        .momentum = spec->optimizer.momentum,
        .beta1 = spec->optimizer.betas[0],
        .beta2 = spec->optimizer.betas[1],
        .eps = spec->optimizer.eps,
        .weight_decay = spec->optimizer.weight_decay,
        .clip = spec->optimizer.clip,
        .nesterov = spec->optimizer.nesterov,
        .state_count = ops->state_count,
    };
    if (ops == &optim_sgd && o->momentum == 0.0)
        o->state_count = 0;
    void *state = NULL;
    if (o->state_count > 0 &&
        device_alloc(device, o->state_count * count * sizeof(float), "optimizer state", &state, e)) {
        free(o);
        return e->code;
    }
    o->state = state;
    *out = o;
    return ERR_OK;
}

void optim_free(struct optim *o)
{
    if (!o)
        return;
    o->device->ops->free(o->device, o->state);
    free(o);
}

double optim_norm(struct optim *o, const float *grads)
{
    double squares = 0.0;
    o->device->ops->sum_squares(o->device, grads, o->count, &squares);
    return sqrt(squares);
}

double optim_clip_scale(const struct optim *o, double norm)
{
    if (o->clip <= 0.0)
        return 1.0;
    double scale = o->clip / (norm + 1e-6);
    return scale < 1.0 ? scale : 1.0;
}

void optim_update(struct optim *o, float *params, const float *grads, double lr, double scale)
{
    o->steps++;
    o->ops->update(o, params, grads, lr, scale);
}
