#include "trainer/optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

static void add_run(struct optim *o, size_t offset, size_t count, bool decay)
{
    if (count == 0)
        return;
    struct optim_run *last = o->run_count ? &o->runs[o->run_count - 1] : NULL;
    if (last && last->decay == decay) {
        last->count += count;
        return;
    }
    o->runs = array_grow(o->runs, o->run_count, &o->run_cap, sizeof(*o->runs));
    o->runs[o->run_count++] = (struct optim_run){offset, count, decay};
}

static enum err_code alloc_state(struct optim *o, struct err *e)
{
    size_t bytes = o->state_count * o->count * sizeof(float);
    void *state = NULL, *measure = NULL;
    if (device_alloc(o->device, sizeof(*o->measure), "a gradient's norm", &measure, e))
        return e->code;
    o->measure = measure;
    if (bytes > 0 && device_alloc(o->device, bytes, "optimizer state", &state, e))
        return e->code;
    o->state = state;
    return ERR_OK;
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
    /* Plain SGD has no moments, neither in memory nor in snapshots. */
    if (ops == &optim_sgd && o->momentum == 0.0)
        o->state_count = 0;
    add_run(o, 0, count, true);
    if (alloc_state(o, e)) {
        optim_free(o);
        return e->code;
    }
    *out = o;
    return ERR_OK;
}

void optim_free(struct optim *o)
{
    if (!o)
        return;
    o->device->ops->free(o->device, o->state);
    o->device->ops->free(o->device, o->measure);
    free(o->runs);
    free(o);
}

/* Exemptions come in rising order, so only the last run can be divided. Adjacent exempt ranges become one
 * run. */
void optim_exempt(struct optim *o, size_t offset, size_t count)
{
    struct optim_run last = o->runs[--o->run_count];
    size_t end = last.offset + last.count;
    BUG_ON(!last.decay || offset < last.offset || offset + count > end);
    add_run(o, last.offset, offset - last.offset, true);
    add_run(o, offset, count, false);
    add_run(o, offset + count, end - offset - count, true);
}

void optim_update(struct optim *o, float *params, const float *grads, double lr, bool measure)
{
    const struct device_ops *ops = o->device->ops;
    bool clip = o->clip > 0.0;
    o->steps++;
    if (clip || measure)
        ops->sum_squares(o->device, grads, o->count, &o->measure->squares);
    if (clip)
        ops->clip_scale(o->device, &o->measure->scale, &o->measure->squares, o->clip);
    for (size_t i = 0; i < o->run_count; i++)
        o->ops->update(o, &o->runs[i], params, grads, lr, clip ? &o->measure->scale : NULL);
}

double optim_norm(struct optim *o)
{
    double squares = 0.0;
    o->device->ops->download(o->device, &squares, &o->measure->squares, sizeof(squares));
    return sqrt(squares);
}
