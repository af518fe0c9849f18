#include "trainer/optim/optim.h"

static struct device_muon muon_of(const struct optim *o)
{
    return (struct device_muon){
        .momentum = (float)o->momentum,
        .weight_decay = (float)o->weight_decay,
        .kept = o->kept,
        .matrices = o->matrices,
        .count = o->matrix_count,
        .room = o->room,
    };
}

static void muon_update(struct optim *o, const struct optim_run *run, float *params, const float *grads,
                        double lr, const float *scale)
{
    if (!run->matrix)
        optim_adamw_run(o, run, params, grads, lr * o->adamw_rate, scale, o->state + run->offset,
                        o->state + run->second);
}

static void muon_update_matrices(struct optim *o, float *params, const float *grads, double lr,
                                 const float *scale)
{
    struct device_muon h = muon_of(o);
    h.lr = (float)lr;
    h.scale = scale;
    h.narrowed = o->device->narrows ? o->narrowed : NULL;
    if (h.count > 0)
        o->device->ops->muon(o->device, &h, params, grads, o->state);
}

static size_t muon_room(const struct optim *o)
{
    const struct device_muon h = muon_of(o);
    return h.count > 0 ? o->device->ops->muon_bytes(o->device, &h) : 0;
}

/* A matrix has a momentum; what AdamW updates has two moments. Both first moments share one array, since a
 * parameter has one or the other. */
const struct optim_ops optim_muon = {
    .name = "muon",
    .state_count = 3,
    .state_names = {"momentum", "exp_avg", "exp_avg_sq"},
    .update = muon_update,
    .update_matrices = muon_update_matrices,
    .room = muon_room,
};
