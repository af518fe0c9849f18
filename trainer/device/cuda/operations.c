/* The operations of device.h. Each puts its kernels on the stream, unless the device has an error. */
#include "trainer/device/cuda/operations.h"
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/graph.h"
#include "trainer/device/cuda/memory.h"
#include "trainer/device/cuda/muon.h"

/* Records e as the device's error if code says that there is one. */
static void op_check(struct cuda_device *c, enum err_code code, const struct err *e)
{
    if (code)
        cuda_failed(c, e);
}

/* ---- products */

/* An error of CUDA is recorded by cuda_ok, which knows whether it ends the context; any other error as it is. */
static void op_check_all(struct cuda_device *c, enum err_code code, const char *what, const struct err *e)
{
    if (!code || cuda_ok(c, cudaGetLastError(), what))
        op_check(c, code, e);
}

static void op_product(struct device *d, const struct device_product *h)
{
    struct cuda_device *c = cuda_of(d);
    struct err e = {0};
    if (cuda_ready(c))
        op_check(c, gemm_product(c->gemm, h, &e), &e);
}

static void op_linear(struct device *d, const struct device_linear *h)
{
    struct cuda_device *c = cuda_of(d);
    struct err e = {0};
    if (cuda_ready(c))
        op_check_all(c, gemm_linear(c->gemm, h, &e), "linear", &e);
}

static bool activation_grad(struct device *d, const struct device_activation_grad *h)
{
    struct cuda_device *c = cuda_of(d);
    struct err e = {0};
    if (!cuda_ready(c))
        return true;
    enum err_code code = gemm_activation_grad(c->gemm, &c->work, h, &e);
    if (code == ERR_UNIMPLEMENTED)
        return false; /* the caller takes a product and bias_activate_grad instead */
    op_check_all(c, code, "activation_grad", &e);
    return true;
}

static bool weight_grad(struct device *d, const struct device_weight_grad *h)
{
    struct cuda_device *c = cuda_of(d);
    struct err e = {0};
    if (!cuda_ready(c))
        return true;
    enum err_code code = gemm_weight_grad(c->gemm, &c->work, h, &e);
    if (code == ERR_UNIMPLEMENTED)
        return false; /* the caller takes a product and bias_grad instead */
    op_check_all(c, code, "weight_grad", &e);
    return true;
}

static void op_choose(struct device *d, bool on)
{
    gemm_choose(cuda_of(d)->gemm, on);
}

static void op_choices(struct device *d, struct buf *out)
{
    gemm_print_choices(cuda_of(d)->gemm, out);
}

static enum err_code take_choices(struct device *d, const char *text, size_t size, struct err *e)
{
    struct cuda_device *c = cuda_of(d);
    cuda_forget(c); /* recorded work has the algorithms of before */
    return gemm_take_choices(c->gemm, text, size, e);
}

/* ---- flat arrays and matrices */

static void op_narrow(struct device *d, void *bf16, const float *x, size_t n)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_narrow(c->stream, bf16, x, n), "narrow");
}

static void bias_grad(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                      int64_t cols)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_bias_grad(c->stream, &c->work, type, db, dy, rows, cols), "bias_grad");
}

static void op_activate(struct device *d, enum device_activation kind, float *y, const float *x, size_t n)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_activate(c->stream, kind, y, x, n), "activate");
}

static void op_activate_grad(struct device *d, enum device_activation kind, float *dx, const float *dy,
                             const float *x, size_t n)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_activate_grad(c->stream, kind, dx, dy, x, n), "activate_grad");
}

static void bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                               enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                               const void *z, int64_t rows, int64_t cols)
{
    struct cuda_device *c = cuda_of(d);
    BUG_ON(type != kept);
    if (cuda_ready(c))
        cuda_ok(c, cuda_bias_activate_grad(c->stream, &c->work, kind, type, dz, a, dbias, da, z, rows, cols),
                "bias_activate_grad");
}

static void op_scale(struct device *d, float *x, size_t n, float by)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_scale(c->stream, x, n, by), "scale");
}

static void op_add(struct device *d, float *y, const float *x, size_t n)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_add(c->stream, y, x, n), "add");
}

/* ---- sequences */

static void op_embed(struct device *d, const struct device_embedding *h, const float *wte, const float *wpe,
                     float *x)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_embed(c->stream, h, wte, wpe, x), "embed");
}

/* The only operation whose workspace depends on its sizes. Usually reserve has allocated it already. */
static void op_embed_grad(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                          void *dx)
{
    struct cuda_device *c = cuda_of(d);
    struct device_sizes sizes = {.n = h->n, .vocab = h->vocab};
    struct err e = {0};
    if (!cuda_ready(c))
        return;
    op_check(c, cuda_work_grow(c, cuda_workspace_bytes(&sizes), &e), &e);
    if (cuda_ready(c))
        cuda_ok(c, cuda_embed_grad(c->stream, &c->work, h, dwte, dwpe, dx), "embed_grad");
}

static void op_norm(struct device *d, const struct device_norm *h)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_norm(c->stream, h), "norm");
}

static void op_norm_grad(struct device *d, const struct device_norm_grad *h)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_norm_grad(c->stream, &c->work, h), "norm_grad");
}

/* Attention allocates memory of its own: adds what it has allocated since it held `before` bytes. */
static void count_attention(struct cuda_device *c, size_t before)
{
    c->base.workspace += attention_bytes(c->attention) - before;
}

static void op_attention(struct device *d, const struct device_attention *h)
{
    struct cuda_device *c = cuda_of(d);
    struct err e = {0};
    if (!cuda_ready(c))
        return;
    size_t before = attention_bytes(c->attention);
    op_check_all(c, attention_forward(c->attention, h, &e), "attention", &e);
    count_attention(c, before);
}

static void attention_grad(struct device *d, const struct device_attention *h, const void *d_o, void *dqkv)
{
    struct cuda_device *c = cuda_of(d);
    struct err e = {0};
    if (!cuda_ready(c))
        return;
    size_t before = attention_bytes(c->attention);
    op_check_all(c, attention_backward(c->attention, h, d_o, dqkv, &e), "attention", &e);
    count_attention(c, before);
}

static enum err_code op_reserve(struct device *d, const struct device_sizes *sizes, struct err *e)
{
    struct cuda_device *c = cuda_of(d);
    size_t before = attention_bytes(c->attention);
    if (cuda_work_grow(c, cuda_workspace_bytes(sizes), e))
        return e->code;
    enum err_code code = sizes->heads > 0 ? attention_reserve(c->attention, sizes, e) : ERR_OK;
    count_attention(c, before);
    return code;
}

static void op_attention_says(struct device *d, struct device_attention_text *out)
{
    struct cuda_device *c = cuda_of(d);
    size_t before = attention_bytes(c->attention);
    attention_tell(c->attention, out);
    count_attention(c, before); /* the workspace for cuDNN is allocated when its plans are there */
}

/* ---- losses and optimizers */

static void op_cross_entropy(struct device *d, const struct device_classes *h)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_cross_entropy(c->stream, &c->work, h), "cross_entropy");
}

static void op_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
                   float by, struct device_tally *tally)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_mse(c->stream, &c->work, dx, x, y, rows, cols, by, tally), "mse");
}

static void tally_mean(struct device *d, float *to, const struct device_tally *tally, double divisor)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_tally_mean(c->stream, to, tally, divisor), "tally_mean");
}

static void sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_sum_squares(c->stream, &c->work, x, n, out), "sum_squares");
}

static void op_digest(struct device *d, uint64_t *sums, const float *x, size_t n)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_digest(c->stream, sums, x, n), "digest");
}

static void clip_scale(struct device *d, float *to, const double *squares, double clip)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_clip_scale(c->stream, to, squares, clip), "clip_scale");
}

static void op_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_sgd(c->stream, h, p, g, v, n), "sgd");
}

static void op_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                     float *v, size_t n)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_adamw(c->stream, h, p, g, m, v, n), "adamw");
}

static void op_adamw_ranges(struct device *d, const struct device_adamw *h,
                            const struct device_ranges *ranges, float *p, const float *g, float *m, float *v,
                            void *narrowed)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_adamw_ranges(c->stream, h, ranges, p, g, m, v, narrowed), "adamw_ranges");
}

static void op_zero_ranges(struct device *d, const struct device_ranges *ranges, float *x)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c))
        cuda_ok(c, cuda_zero_ranges(c->stream, ranges, x), "zero_ranges");
}

void cuda_operations(struct device_ops *ops)
{
    /* The rest of the table (memory, copies, graphs, waiting) is set by cuda.c. */
    ops->product = op_product;
    ops->linear = op_linear;
    ops->narrow = op_narrow;
    ops->bias_grad = bias_grad;
    ops->activate = op_activate;
    ops->activate_grad = op_activate_grad;
    ops->bias_activate_grad = bias_activate_grad;
    ops->activation_grad = activation_grad;
    ops->weight_grad = weight_grad;
    ops->choose = op_choose;
    ops->choices = op_choices;
    ops->take_choices = take_choices;
    ops->embed = op_embed;
    ops->embed_grad = op_embed_grad;
    ops->norm = op_norm;
    ops->norm_grad = op_norm_grad;
    ops->attention = op_attention;
    ops->attention_grad = attention_grad;
    ops->reserve = op_reserve;
    ops->attention_says = op_attention_says;
    ops->cross_entropy = op_cross_entropy;
    ops->mse = op_mse;
    ops->tally_mean = tally_mean;
    ops->sum_squares = sum_squares;
    ops->digest = op_digest;
    ops->clip_scale = clip_scale;
    ops->scale = op_scale;
    ops->add = op_add;
    ops->sgd = op_sgd;
    ops->adamw = op_adamw;
    ops->adamw_ranges = op_adamw_ranges;
    ops->zero_ranges = op_zero_ranges;
    ops->muon = cuda_muon;
    ops->muon_bytes = cuda_muon_bytes;
}
