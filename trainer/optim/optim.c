#include "trainer/optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

static void add_run(struct optim *o, size_t offset, size_t count, bool decay)
{
    if (count == 0)
        return;
    o->runs = array_grow(o->runs, o->run_count, &o->run_cap, sizeof(*o->runs));
    o->runs[o->run_count++] = (struct optim_run){offset, count, decay};
}

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
    add_run(o, 0, count, true);
    *out = o;
    return ERR_OK;
}

void optim_free(struct optim *o)
{
    if (!o)
        return;
    o->device->ops->free(o->device, o->state);
    free(o->runs);
    free(o);
}

/* Only the last run may be cut: exemptions come in rising order. */
void optim_exempt(struct optim *o, size_t offset, size_t count)
{
    struct optim_run last = o->runs[--o->run_count];
    size_t end = last.offset + last.count;
    BUG_ON(!last.decay || offset < last.offset || offset + count > end);
    add_run(o, last.offset, offset - last.offset, true);
    add_run(o, offset, count, false);
    add_run(o, offset + count, end - offset - count, true);
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
    for (size_t i = 0; i < o->run_count; i++)
        o->ops->update(o, &o->runs[i], params, grads, lr, scale);
}
