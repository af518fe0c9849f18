#include "trainer/engine/rehearse.h"

#include "trainer/engine/micro_batch.h"

enum err_code engine_rehearse(struct engine *n, struct err *e)
{
    const struct device_ops *ops = n->device->ops;
    size_t floats = n->model->count + TAIL_FLOATS;
    struct model_batch batch;
    if (n->rows == 0 || n->train->count == 0)
        return ERR_OK;
    for (int64_t i = 0; i < n->rows; i++)
        n->index[i] = i % n->train->count;
    if (micro_batch_load(n, n->train, n->rows, &batch, e) || ops->wait(n->device, e))
        return e->code;
    ops->choose(n->device, true);
    /* The products of the first micro-batch of a step set gradients; those of the others add to them. */
    for (int64_t i = 0; i < (n->sampler.accumulate > 1 ? 2 : 1); i++) {
        batch.set_grads = i == 0;
        model_train(n->model, n->params.data, n->grads.data, &batch, 1.0f / (float)n->rows, n->tally, NULL,
                    NULL);
    }
    ops->choose(n->device, false);
    ops->zero(n->device, n->grads.data, floats * sizeof(float));
    ops->zero(n->device, n->tally, sizeof(*n->tally));
    return ops->wait(n->device, e);
}
