#include "trainer/model/model.h"

#include "trainer/model/gpt.h"
#include "trainer/model/mlp.h"

static enum device_activation activation_of(enum activation_type type)
{
    switch (type) {
    case ACTIVATION_GELU:
        return DEVICE_GELU;
    case ACTIVATION_GELU_TANH:
        return DEVICE_GELU_TANH;
    case ACTIVATION_TANH:
        return DEVICE_TANH;
    case ACTIVATION_RELU:
        break;
    }
    return DEVICE_RELU;
}

static enum err_code model_check_widths(const int64_t *sizes, size_t n, int64_t data_in, int64_t data_out,
                                        struct err *e)
{
    if (sizes[0] != data_in)
        return err_set(e, ERR_INVALID_ARGUMENT, "the model has %lld inputs, but the data has %lld",
                       (long long)sizes[0], (long long)data_in);
    if (sizes[n - 1] != data_out)
        return err_set(e, ERR_INVALID_ARGUMENT, "the model has %lld outputs, but the data has %lld",
                       (long long)sizes[n - 1], (long long)data_out);
    return ERR_OK;
}

static enum err_code open_mlp(struct model **out, const struct train_spec *spec, enum loss_type loss,
                              int64_t data_in, int64_t data_out, int64_t max_rows, struct device *device,
                              struct err *e)
{
    int64_t linear[2] = {spec->model.in, spec->model.out};
    const int64_t *sizes = spec->model.type == MODEL_LINEAR ? linear : spec->model.sizes;
    size_t n = spec->model.type == MODEL_LINEAR ? 2 : spec->model.size_count;
    BUG_ON(n < 2);
    if (model_check_widths(sizes, n, data_in, data_out, e))
        return e->code;
    return mlp_open(out, sizes, n, activation_of(spec->model.activation), loss, max_rows, device, e);
}

static enum err_code open_gpt(struct model **out, const struct train_spec *spec, int64_t data_in,
                              int64_t data_out, int64_t max_rows, double extra_arrays, struct device *device,
                              struct err *e)
{
    struct gpt_shape shape = {
        .layers = spec->model.layers,
        .heads = spec->model.heads,
        .width = spec->model.width,
        .context = spec->model.context,
        /* The job may ask for more symbols than the data has: for later training on other data, or for a
         * convenient width. */
        .vocab = spec->model.vocab ? spec->model.vocab : data_out,
        .dropout = spec->model.dropout,
        .tied = spec->model.tied,
        .activation = activation_of(spec->model.activation),
        .type = spec->precision == PRECISION_BF16 ? DEVICE_BF16 : DEVICE_F32,
        .seed = (uint64_t)spec->seed,
        .extra_arrays = extra_arrays,
        .recompute = spec->recompute == RECOMPUTE_BLOCK,
    };
    if (data_in != shape.context)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the model's context is %lld, but the data has windows of %lld",
                       (long long)shape.context, (long long)data_in);
    if (data_out > shape.vocab)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the model's vocabulary is %lld, but the data has %lld symbols",
                       (long long)shape.vocab, (long long)data_out);
    return gpt_open(out, &shape, max_rows, device, e);
}

enum err_code model_open(struct model **out, const struct train_spec *spec, enum loss_type loss,
                         int64_t data_in, int64_t data_out, int64_t max_rows, double extra_arrays,
                         struct device *device, struct err *e)
{
    BUG_ON(max_rows < 1);
    if (spec->model.type == MODEL_GPT)
        return open_gpt(out, spec, data_in, data_out, max_rows, extra_arrays, device, e);
    return open_mlp(out, spec, loss, data_in, data_out, max_rows, device, e);
}

void model_free(struct model *m)
{
    if (m)
        m->ops->free(m);
}

void model_init(const struct model *m, float *params, uint64_t seed)
{
    m->ops->init(m, params, seed);
}

double model_flops(const struct model *m, int64_t rows)
{
    return m->ops->flops(m, rows);
}

size_t model_units(const struct model *m, struct model_unit *out)
{
    const size_t count = m->ops->units(m, out);
    double sum = 0;
    for (size_t i = 0; out && i < count; i++)
        sum += out[i].work;
    for (size_t i = 0; out && i < count; i++)
        out[i].work /= sum;
    return count;
}

void model_evaluate(struct model *m, const float *params, const struct model_batch *b,
                    struct device_tally *tally)
{
    BUG_ON(b->rows > m->max_rows);
    if (b->rows > 0)
        m->ops->evaluate(m, params, b, tally);
}

void model_train(struct model *m, const float *params, float *grads, const struct model_batch *b, float scale,
                 struct device_tally *tally, model_ready_fn ready, void *arg)
{
    BUG_ON(b->rows > m->max_rows);
    if (b->rows > 0) {
        m->ops->train(m, params, grads, b, scale, tally, ready, arg);
        return;
    }
    model_need(b, m->count);
    if (b->set_grads) /* a rank without samples: its gradients must not be those of the step before */
        m->device->ops->zero(m->device, grads, m->count * sizeof(float));
    if (ready)
        ready(arg, 0, m->count);
}
