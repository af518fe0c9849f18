#include "trainer/model/mlp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"

#define ALIGN_FLOATS 16

struct layer {
    int64_t in, out;
    size_t weight, bias; /* offsets into params and grads */
    float *z;            /* (max_rows,out) before the activation; in the last layer: the output */
    float *a;            /* (max_rows,out) after it; NULL in the last layer */
};

struct mlp {
    struct model base;
    enum device_activation activation;
    enum loss_type loss; /* LOSS_MSE or LOSS_CROSS_ENTROPY */
    size_t layer_count;
    struct layer *layers;
    float *grad[2]; /* (max_rows, widest): d loss / d z of this layer, and of the layer before */
    float *output;  /* (max_rows,out) */
};

static struct mlp *mlp_of(struct model *m)
{
    return (struct mlp *)(void *)m;
}

static void mlp_free(struct model *m)
{
    m->device->ops->free(m->device, m->activations);
    free(mlp_of(m)->layers);
    free(m->tensors);
    free(m);
}

static size_t aligned_count(size_t count)
{
    return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static size_t add_tensor(struct model *m, const char *prefix, const char *name, int dims, int64_t rows,
                         int64_t cols)
{
    struct model_tensor *t = &m->tensors[m->tensor_count++];
    snprintf(t->name, sizeof(t->name), "%s%s", prefix, name);
    t->dims = dims;
    t->shape[0] = rows;
    t->shape[1] = cols;
    t->offset = m->count;
    t->count = (size_t)(rows * cols);
    t->decay = true;
    m->count += aligned_count(t->count);
    m->parameters += t->count;
    return t->offset;
}

static void mlp_lay_out_tensors(struct mlp *n, const int64_t *sizes)
{
    struct model *m = &n->base;
    m->tensors = xcalloc(2 * n->layer_count, sizeof(*m->tensors));
    for (size_t i = 0; i < n->layer_count; i++) {
        struct layer *l = &n->layers[i];
        char prefix[32] = "";
        if (n->layer_count > 1)
            snprintf(prefix, sizeof(prefix), "layers.%zu.", i);
        l->in = sizes[i];
        l->out = sizes[i + 1];
        l->weight = add_tensor(m, prefix, "weight", 2, l->out, l->in);
        m->tensors[m->tensor_count - 1].matrices = i + 1 < n->layer_count; /* the last layer is the head */
        m->tensors[m->tensor_count - 1].out_first = true;
        l->bias = add_tensor(m, prefix, "bias", 1, l->out, 1);
    }
}

static float *floats_take(float **at, size_t count)
{
    float *p = *at;
    *at += aligned_count(count);
    return p;
}

/* Makes one allocation for all activations and their gradients. */
static enum err_code mlp_alloc_activations(struct mlp *n, struct err *e)
{
    struct model *m = &n->base;
    size_t rows = (size_t)m->max_rows, total = 0, widest = 0;
    for (size_t i = 0; i < n->layer_count; i++) {
        size_t out = (size_t)n->layers[i].out;
        total += aligned_count(rows * out) * (i + 1 < n->layer_count ? 2 : 1);
        widest = out > widest ? out : widest;
    }
    /* Two gradients exist at the same time: of a layer's output, and of the output of the layer before. */
    total += 2 * aligned_count(rows * widest);
    m->activation_bytes = total * sizeof(float);
    void *memory = NULL;
    if (device_alloc(m->device, m->activation_bytes, "activations", &memory, e))
        return e->code;
    m->activations = memory;
    float *at = m->activations;
    for (size_t i = 0; i < n->layer_count; i++) {
        struct layer *l = &n->layers[i];
        l->z = floats_take(&at, rows * (size_t)l->out);
        if (i + 1 < n->layer_count)
            l->a = floats_take(&at, rows * (size_t)l->out);
    }
    n->grad[0] = floats_take(&at, rows * widest);
    n->grad[1] = floats_take(&at, rows * widest);
    n->output = n->layers[n->layer_count - 1].z;
    return ERR_OK;
}

static void mlp_init(const struct model *m, float *params, uint64_t seed)
{
    const struct mlp *n = mlp_of((struct model *)(uintptr_t)m);
    float *host = m->device->host ? params : xcalloc(m->count, sizeof(float));
    for (size_t i = 0; i < n->layer_count; i++) {
        const struct layer *l = &n->layers[i];
        float bound = 1.0f / sqrtf((float)l->in);
        struct random r = random_stream(seed, i);
        for (int64_t j = 0; j < l->in * l->out; j++)
            host[l->weight + (size_t)j] = bound * (2.0f * random_float(&r) - 1.0f);
        for (int64_t j = 0; j < l->out; j++)
            host[l->bias + (size_t)j] = bound * (2.0f * random_float(&r) - 1.0f);
    }
    if (host == params)
        return;
    m->device->ops->upload(m->device, params, host, m->count * sizeof(float));
    free(host);
}

/* Computes the outputs, in n->output. */
static void mlp_forward(struct model *m, const float *params, const struct model_batch *b)
{
    struct mlp *n = mlp_of(m);
    const struct device_ops *ops = m->device->ops;
    const float *x = b->x;
    for (size_t i = 0; i < n->layer_count; i++) {
        struct layer *l = &n->layers[i];
        model_need(b, i + 1 < n->layer_count ? l[1].weight : m->count);
        /* z (rows,out) = x (rows,in) W^T, W (out,in) */
        struct device_linear h = {
            .type = DEVICE_F32,
            .kept = DEVICE_F32,
            .trans_w = true,
            .rows = b->rows,
            .in = l->in,
            .out = l->out,
            .x = x,
            .w = params + l->weight,
            .bias = params + l->bias,
            .z = l->z,
            .kind = n->activation,
            .a = l->a,
        };
        ops->linear(m->device, &h);
        x = l->a;
    }
}

/* Adds the loss to the tally. grad: (rows,out) gets the gradient of the output; NULL: not computed. */
static void mlp_loss(struct model *m, float *grad, const struct model_batch *b, float scale,
                     struct device_tally *tally)
{
    const struct device_ops *ops = m->device->ops;
    struct mlp *n = mlp_of(m);
    struct device_classes h = {
        .type = DEVICE_F32,
        .kept = DEVICE_F32,
        .rows = b->rows,
        .classes = m->out,
        .stride = m->out,
        .label = b->label,
        .x = n->output,
        .dx = grad,
        .scale = scale,
        .weight = 1.0,
        .tally = tally,
    };
    if (n->loss == LOSS_MSE)
        ops->mse(m->device, grad, n->output, b->y, b->rows, m->out, scale, tally);
    else
        ops->cross_entropy(m->device, &h);
}

static void mlp_evaluate(struct model *m, const float *params, const struct model_batch *b,
                         struct device_tally *tally)
{
    mlp_forward(m, params, b);
    mlp_loss(m, NULL, b, 1.0f, tally);
}

/* dW (out,in) += dz^T (out,rows) x (rows,in) */
static void weight_grad(struct model *m, float *grads, const struct layer *l, const float *dz, const float *x,
                        int64_t rows)
{
    struct device_product h = {
        .type = DEVICE_F32,
        .out = DEVICE_F32,
        .trans_a = true,
        .m = l->out,
        .n = l->in,
        .k = rows,
        .a = dz,
        .b = x,
        .beta = 1.0f,
        .c = grads + l->weight,
    };
    m->device->ops->product(m->device, &h);
}

/* dx (rows,in) = dz (rows,out) W (out,in) */
static void input_grad(struct model *m, const float *params, const struct layer *l, const float *dz,
                       float *dx, int64_t rows)
{
    struct device_product h = {
        .type = DEVICE_F32,
        .out = DEVICE_F32,
        .m = rows,
        .n = l->in,
        .k = l->out,
        .a = dz,
        .b = params + l->weight,
        .c = dx,
    };
    m->device->ops->product(m->device, &h);
}

/* Computes all gradients of parameters from d loss / d output in grad[0]; db += column sums of dz. */
static void mlp_backward(struct model *m, const float *params, float *grads, const struct model_batch *b,
                         model_ready_fn ready, void *arg)
{
    struct mlp *n = mlp_of(m);
    const struct device_ops *ops = m->device->ops;
    float *dz = n->grad[0], *below = n->grad[1];
    size_t end = m->count;
    for (size_t i = n->layer_count; i-- > 0;) {
        struct layer *l = &n->layers[i];
        const float *x = i > 0 ? n->layers[i - 1].a : b->x;
        weight_grad(m, grads, l, dz, x, b->rows);
        ops->bias_grad(m->device, DEVICE_F32, grads + l->bias, dz, b->rows, l->out);
        if (ready)
            ready(arg, l->weight, end - l->weight);
        end = l->weight;
        /* The gradient of the inputs is not needed. */
        if (i == 0)
            break;
        struct layer *under = &n->layers[i - 1];
        input_grad(m, params, l, dz, below, b->rows);
        ops->activate_grad(m->device, n->activation, below, below, under->z, (size_t)(b->rows * l->in));
        float *swap = dz;
        dz = below;
        below = swap;
    }
}

static void mlp_train(struct model *m, const float *params, float *grads, const struct model_batch *b,
                      float scale, struct device_tally *tally, model_ready_fn ready, void *arg)
{
    mlp_forward(m, params, b);
    if (b->set_grads)
        m->device->ops->zero(m->device, grads, m->count * sizeof(float));
    mlp_loss(m, mlp_of(m)->grad[0], b, scale, tally);
    mlp_backward(m, params, grads, b, ready, arg);
}

static double mlp_flops(const struct model *m, int64_t rows)
{
    double weights = 0.0;
    for (size_t i = 0; i < m->tensor_count; i++)
        weights += m->tensors[i].dims == 2 ? (double)m->tensors[i].count : 0.0;
    return 6.0 * weights * (double)rows;
}

static size_t mlp_units(const struct model *m, struct model_unit *out)
{
    const struct mlp *n = mlp_of((struct model *)(uintptr_t)m);
    for (size_t i = 0; out && i < n->layer_count; i++) {
        const struct layer *l = &n->layers[i];
        out[i] = (struct model_unit){.begin = l->weight,
                                     .need = i + 1 < n->layer_count ? l[1].weight : m->count,
                                     .work = (double)(l->in * l->out)};
    }
    return n->layer_count;
}

static const struct model_ops mlp_ops = {
    .free = mlp_free,
    .init = mlp_init,
    .evaluate = mlp_evaluate,
    .train = mlp_train,
    .flops = mlp_flops,
    .units = mlp_units,
};

enum err_code mlp_open(struct model **out, const int64_t *sizes, size_t size_count,
                       enum device_activation activation, enum loss_type loss_type, int64_t max_rows,
                       struct device *device, struct err *e)
{
    struct mlp *n = xcalloc(1, sizeof(*n));
    n->activation = activation;
    n->loss = loss_type;
    n->layer_count = size_count - 1;
    n->layers = xcalloc(n->layer_count, sizeof(*n->layers));
    n->base = (struct model){.ops = &mlp_ops, .device = device, .max_rows = max_rows};
    n->base.in = sizes[0];
    n->base.out = sizes[size_count - 1];
    mlp_lay_out_tensors(n, sizes);
    if (mlp_alloc_activations(n, e)) {
        mlp_free(&n->base);
        return e->code;
    }
    *out = &n->base;
    return ERR_OK;
}
