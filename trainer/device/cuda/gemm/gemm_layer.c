/* Layers as one product, or as a product and kernels: see gemm_layer.h. */
#include "trainer/device/cuda/gemm/gemm_layer.h"

#include "trainer/device/cuda/error.h"
#include "trainer/device/cuda/kernels/dense.h"
#include "trainer/device/cuda/kernels/flat.h"

/* What the two ways of an operation need: 0 is one product, 1 is a product and a kernel. */
struct two_ways {
    struct gemm *g;
    struct gemm_call one;
    struct device_product product;
    const struct cuda_workspace *work;
    const struct device_linear *linear;
    const struct device_activation_grad *grad;
    const struct device_weight_grad *weights;
};

/* ---- a layer */

static enum err_code linear_apart(const struct two_ways *w, struct err *e)
{
    const struct device_linear *h = w->linear;
    if (gemm_product(w->g, &w->product, e))
        return e->code;
    cudaError_t code =
        cuda_bias_activate(gemm_stream(w->g), h->kind, h->type, h->a, h->z, h->bias, h->rows, h->out);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "a layer's bias", e);
}

static bool linear_way(void *arg, int way, cudaStream_t stream)
{
    const struct two_ways *w = arg;
    struct err e = {0};
    (void)stream; /* it is the stream of w->g */
    return (way == 0 ? gemm_run(w->g, &w->one, &e) : linear_apart(w, &e)) == ERR_OK;
}

/* Computes a layer in one product, with the bias and the activation in its epilogue. UNIMPLEMENTED: one product cannot
 * do it. z, the input of the activation, is the epilogue's "aux" output. cuBLASLt's GELU is the tanh form, and its bias
 * has the type of the result. A bias must be 16-byte aligned: cuBLASLt has chosen algorithms that read 16 bytes of it
 * at once, whatever its alignment was (pytorch/pytorch#194497). */
static enum err_code linear_fused(struct two_ways *w, struct err *e)
{
    const struct device_linear *h = w->linear;
    struct gemm_call *c = &w->one;
    bool bf16 = h->kept == DEVICE_BF16;
    *c = gemm_call_of(&w->product);
    c->bias = bf16 ? h->typed : h->bias;
    if (!c->bias || gemm_alignment(c->bias) < 16 || h->type != h->kept ||
        (h->a && (h->kind != DEVICE_GELU_TANH || !bf16 || h->out % 8)))
        return err_set(e, ERR_UNIMPLEMENTED, "not in one product");
    c->shape.epilogue = h->a ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS;
    c->shape.align_bias = gemm_alignment(c->bias);
    if (h->a) {
        c->c = h->a;
        c->aux = h->z;
        c->shape.align_c = gemm_alignment(h->a);
        c->shape.align_aux = gemm_alignment(h->z);
    }
    return gemm_run(w->g, c, e);
}

enum err_code gemm_linear(struct gemm *g, const struct device_linear *h, struct err *e)
{
    struct err why = {0};
    struct two_ways w = {.g = g, .linear = h};
    w.product = (struct device_product){.type = h->type,
                                        .out = h->kept,
                                        .trans_b = h->trans_w,
                                        .m = h->rows,
                                        .n = h->out,
                                        .k = h->in,
                                        .a = h->x,
                                        .b = h->w,
                                        .c = h->z};
    if (h->rows == 0 || h->out == 0)
        return ERR_OK;
    enum err_code code = h->in > 0 ? linear_fused(&w, &why) : ERR_UNIMPLEMENTED;
    if (code == ERR_OK && gemm_undecided(g, &w.one))
        gemm_decide(g, &w.one, linear_way, &w);
    if (code == ERR_UNIMPLEMENTED)
        return linear_apart(&w, e);
    if (code)
        *e = why;
    return code;
}

/* ---- the gradient of an activation */

/* One product computes dz (rows,in), and a kernel computes a; da is never stored. */
static enum err_code grad_fused(const struct two_ways *w, struct err *e)
{
    const struct device_activation_grad *h = w->grad;
    if (gemm_run(w->g, &w->one, e))
        return e->code;
    cudaError_t code =
        cuda_bias_activate(gemm_stream(w->g), h->kind, h->type, h->a, (void *)h->z, NULL, h->rows, h->in);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "activation_grad", e);
}

/* The same work as the caller's, if gemm_activation_grad returns UNIMPLEMENTED. The caller's kernel also sums dz for the
 * bias, which costs it next to nothing; otherwise the sums are part of the product that makes the layer's weights. */
static enum err_code grad_apart(const struct two_ways *w, struct err *e)
{
    const struct device_activation_grad *h = w->grad;
    if (gemm_product(w->g, &w->product, e))
        return e->code;
    cudaError_t code = cuda_bias_activate_grad(gemm_stream(w->g), w->work, h->kind, h->type, h->dz, h->a,
                                               NULL, h->dz, h->z, h->rows, h->in);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "activation_grad", e);
}

static bool grad_way(void *arg, int way, cudaStream_t stream)
{
    const struct two_ways *w = arg;
    struct err e = {0};
    (void)stream;
    return (way == 0 ? grad_fused(w, &e) : grad_apart(w, &e)) == ERR_OK;
}

enum err_code gemm_activation_grad(struct gemm *g, const struct cuda_workspace *work,
                                   const struct device_activation_grad *h, struct err *e)
{
    struct two_ways w = {.g = g, .work = work, .grad = h};
    w.product = (struct device_product){.type = h->type,
                                        .out = h->kept,
                                        .trans_b = true,
                                        .m = h->rows,
                                        .n = h->in,
                                        .k = h->out,
                                        .a = h->dy,
                                        .b = h->w,
                                        .c = h->dz};
    w.one = gemm_call_of(&w.product);
    if (h->type != DEVICE_BF16 || h->kept != DEVICE_BF16 || h->kind != DEVICE_GELU_TANH || h->in % 8 ||
        h->rows == 0 || h->in == 0 || h->out == 0)
        return err_set(e, ERR_UNIMPLEMENTED, "not in one product");
    w.one.shape.epilogue = CUBLASLT_EPILOGUE_DGELU; /* multiplies by the slope of tanh GELU at aux */
    w.one.aux = (void *)h->z;                       /* DGELU only reads it */
    w.one.shape.align_aux = gemm_alignment(h->z);
    if (grad_fused(&w, e))
        return e->code;
    if (gemm_undecided(g, &w.one))
        gemm_decide(g, &w.one, grad_way, &w);
    return ERR_OK;
}

/* ---- the gradient of a layer's weights and bias */

/* cuBLASLt's epilogue overwrites the sums of the bias, so they are made in the workspace if they are to be added. */
static enum err_code weights_fused(const struct two_ways *w, struct err *e)
{
    const struct device_weight_grad *h = w->weights;
    if (gemm_run(w->g, &w->one, e))
        return e->code;
    if (h->set)
        return ERR_OK;
    cudaError_t code = cuda_add(gemm_stream(w->g), h->dbias, w->one.bias, (size_t)h->out);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "weight_grad", e);
}

/* Computes both gradients separately, as the caller does if gemm_weight_grad returns UNIMPLEMENTED. Adds to dbias, which the
 * caller has set to zero before the first micro-batch. */
static enum err_code weights_apart(const struct two_ways *w, struct err *e)
{
    const struct device_weight_grad *h = w->weights;
    if (gemm_product(w->g, &w->product, e))
        return e->code;
    cudaError_t code = cuda_bias_grad(gemm_stream(w->g), w->work, h->type, h->dbias, h->dy, h->rows, h->out);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "weight_grad", e);
}

static bool weights_way(void *arg, int way, cudaStream_t stream)
{
    const struct two_ways *w = arg;
    struct err e = {0};
    (void)stream;
    return (way == 0 ? weights_fused(w, &e) : weights_apart(w, &e)) == ERR_OK;
}

enum err_code gemm_weight_grad(struct gemm *g, const struct cuda_workspace *work,
                               const struct device_weight_grad *h, struct err *e)
{
    struct two_ways w = {.g = g, .work = work, .weights = h};
    w.product = (struct device_product){.type = h->type,
                                        .out = DEVICE_F32,
                                        .trans_a = true,
                                        .m = h->in,
                                        .n = h->out,
                                        .k = h->rows,
                                        .a = h->x,
                                        .b = h->dy,
                                        .beta = h->set ? 0.0f : 1.0f,
                                        .c = h->dw};
    w.one = gemm_call_of(&w.product);
    w.one.bias = h->set ? h->dbias : work->memory;
    if (h->type != DEVICE_BF16 || h->rows == 0 || h->in == 0 || h->out == 0 ||
        gemm_alignment(w.one.bias) < 16 || (size_t)h->out * sizeof(float) > work->bytes)
        return err_set(e, ERR_UNIMPLEMENTED, "not in one product");
    /* dy is cuBLASLt's first factor, A, whose bias gradient BGRADA is. It has the type of the result, float. */
    w.one.shape.epilogue = CUBLASLT_EPILOGUE_BGRADA;
    w.one.shape.align_bias = gemm_alignment(w.one.bias);
    if (weights_fused(&w, e))
        return e->code;
    if (gemm_undecided(g, &w.one))
        gemm_decide(g, &w.one, weights_way, &w);
    return ERR_OK;
}
