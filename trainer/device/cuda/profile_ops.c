/* The table of measured operations. Each function computes the least work that its operation needs (struct
 * profile_work). */
#include <stdio.h>
#include <stdlib.h>

#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/profile.h"
#include "trainer/device/ranges.h"

/* ---- helpers */

static const struct device_ops *measure_begin(struct device *d)
{
    struct profile *p = cuda_of(d)->profile;
    profile_begin(p);
    return &profile_tables(p)->plain;
}

static void measure_end(struct device *d, const struct profile_work *work)
{
    profile_end(cuda_of(d)->profile, work);
}

static double size_of(enum device_type type)
{
    return (double)device_size(type);
}

/* Ends an operation that reads and writes this number of bytes. */
static void measure_bytes(struct device *d, const char *name, double bytes)
{
    struct profile_work w = {.name = name, .bytes = bytes};
    (void)snprintf(w.shape, sizeof(w.shape), "%.0f bytes", bytes);
    measure_end(d, &w);
}

static struct profile_work work_of_rows(const char *name, int64_t rows, int64_t cols, double bytes_each)
{
    struct profile_work w = {.name = name, .bytes = (double)(rows * cols) * bytes_each};
    (void)snprintf(w.shape, sizeof(w.shape), "%lld x %lld", (long long)rows, (long long)cols);
    return w;
}

static int64_t tokens_of(const struct device_tokens *n)
{
    return n->rows * n->context;
}

/* ---- products */

static void measured_product(struct device *d, const struct device_product *h)
{
    double m = (double)h->m, n = (double)h->n, k = (double)h->k;
    bool adds = h->beta > 0.0f;
    struct profile_work w = {
        .name = "product",
        .flops = 2.0 * m * n * k,
        .bytes = (m * k + k * n) * size_of(h->type) + m * n * size_of(h->out) * (adds ? 2.0 : 1.0),
    };
    (void)snprintf(w.shape, sizeof(w.shape), "%c%c %lld x %lld x %lld%s%s", h->trans_a ? 't' : 'n',
                   h->trans_b ? 't' : 'n', (long long)h->m, (long long)h->n, (long long)h->k,
                   h->type == DEVICE_BF16 ? " bf16" : "", adds ? ", adds" : "");
    measure_begin(d)->product(d, h);
    measure_end(d, &w);
}

static void measured_linear(struct device *d, const struct device_linear *h)
{
    double rows = (double)h->rows, in = (double)h->in, out = (double)h->out;
    struct profile_work w = {
        .name = h->a ? "linear and activation" : "linear",
        .flops = 2.0 * rows * in * out,
        .bytes = (rows * in + in * out) * size_of(h->type) + rows * out * size_of(h->kept) +
                 (h->a ? rows * out * size_of(h->type) : 0.0),
    };
    (void)snprintf(w.shape, sizeof(w.shape), "%lld x %lld x %lld%s", (long long)h->rows, (long long)h->out,
                   (long long)h->in, h->type == DEVICE_BF16 ? " bf16" : "");
    measure_begin(d)->linear(d, h);
    measure_end(d, &w);
}

static bool measured_activation_grad(struct device *d, const struct device_activation_grad *h)
{
    double rows = (double)h->rows, in = (double)h->in, out = (double)h->out;
    struct profile_work w = {
        .name = "activation_grad",
        .flops = 2.0 * rows * in * out,
        .bytes = (rows * out + in * out + 2.0 * rows * in) * size_of(h->type) + rows * in * size_of(h->kept),
    };
    (void)snprintf(w.shape, sizeof(w.shape), "%lld x %lld x %lld%s", (long long)h->rows, (long long)h->in,
                   (long long)h->out, h->type == DEVICE_BF16 ? " bf16" : "");
    bool done = measure_begin(d)->activation_grad(d, h);
    measure_end(d, done ? &w : NULL);
    return done;
}

static bool measured_weight_grad(struct device *d, const struct device_weight_grad *h)
{
    double rows = (double)h->rows, in = (double)h->in, out = (double)h->out;
    struct profile_work w = {
        .name = "weight_grad",
        .flops = 2.0 * rows * in * out,
        .bytes = rows * (in + out) * size_of(h->type) + in * out * 8.0,
    };
    (void)snprintf(w.shape, sizeof(w.shape), "%lld x %lld x %lld%s", (long long)h->in, (long long)h->out,
                   (long long)h->rows, h->type == DEVICE_BF16 ? " bf16" : "");
    bool done = measure_begin(d)->weight_grad(d, h);
    measure_end(d, done ? &w : NULL);
    return done;
}

/* ---- flat arrays and matrices */

static void measured_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    measure_begin(d)->copy(d, to, from, bytes);
    measure_bytes(d, "copy", 2.0 * (double)bytes);
}

static void measured_zero(struct device *d, void *to, size_t bytes)
{
    measure_begin(d)->zero(d, to, bytes);
    measure_bytes(d, "zero", (double)bytes);
}

static void measured_narrow(struct device *d, void *bf16, const float *x, size_t n)
{
    measure_begin(d)->narrow(d, bf16, x, n);
    measure_bytes(d, "narrow", 6.0 * (double)n);
}

static void measured_bias_grad(struct device *d, enum device_type type, float *db, const void *dy,
                               int64_t rows, int64_t cols)
{
    struct profile_work w = work_of_rows("bias_grad", rows, cols, size_of(type));
    measure_begin(d)->bias_grad(d, type, db, dy, rows, cols);
    measure_end(d, &w);
}

static void measured_bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                                        enum device_type kept, void *dz, void *a, float *dbias,
                                        const void *da, const void *z, int64_t rows, int64_t cols)
{
    struct profile_work w =
        work_of_rows("bias_activate_grad", rows, cols, 2.0 * size_of(kept) + 2.0 * size_of(type));
    measure_begin(d)->bias_activate_grad(d, kind, type, kept, dz, a, dbias, da, z, rows, cols);
    measure_end(d, &w);
}

static void measured_scale(struct device *d, float *x, size_t n, float by)
{
    measure_begin(d)->scale(d, x, n, by);
    measure_bytes(d, "scale", 8.0 * (double)n);
}

static void measured_add(struct device *d, float *y, const float *x, size_t n)
{
    measure_begin(d)->add(d, y, x, n);
    measure_bytes(d, "add", 12.0 * (double)n);
}

/* ---- sequences */

static void measured_embed(struct device *d, const struct device_embedding *h, const float *wte,
                           const float *wpe, float *x)
{
    struct profile_work w = work_of_rows("embed", tokens_of(&h->n), h->n.width, 8.0);
    measure_begin(d)->embed(d, h, wte, wpe, x);
    measure_end(d, &w);
}

/* Reads dx, and adds to as many rows of dwte as there are tokens, or to all. */
static void measured_embed_grad(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                                void *dx)
{
    int64_t tokens = tokens_of(&h->n), touched = tokens < h->vocab ? tokens : h->vocab;
    struct profile_work w = work_of_rows("embed_grad", tokens, h->n.width, size_of(h->kept));
    w.bytes += 8.0 * (double)(touched * h->n.width);
    measure_begin(d)->embed_grad(d, h, dwte, dwpe, dx);
    measure_end(d, &w);
}

static void measured_norm(struct device *d, const struct device_norm *h)
{
    double each = 4.0 + (h->delta ? size_of(h->kept) + 4.0 : 0.0) + size_of(h->type);
    struct profile_work w =
        work_of_rows(h->delta ? "norm and residual" : "norm", tokens_of(&h->n), h->n.width, each);
    measure_begin(d)->norm(d, h);
    measure_end(d, &w);
}

static void measured_norm_grad(struct device *d, const struct device_norm_grad *h)
{
    double each = (h->set ? 2.0 : 3.0) * size_of(h->kept) + 4.0 + (h->ddelta ? size_of(h->type) : 0.0);
    struct profile_work w =
        work_of_rows(h->dbias ? "norm_grad and residual" : "norm_grad", tokens_of(&h->n), h->n.width, each);
    measure_begin(d)->norm_grad(d, h);
    measure_end(d, &w);
}

/* Only half of the scores count, because attention is causal. `arrays`: how many arrays of (tokens,width) are read or
 * written; `products`: how many products of the size of queries times keys are computed. */
static struct profile_work work_of_attention(const char *name, const struct device_attention *h,
                                             double arrays, double products)
{
    double tokens = (double)tokens_of(&h->n), width = (double)h->n.width;
    struct profile_work w = {
        .name = name,
        .flops = products * tokens * (double)h->n.context * width,
        .bytes = arrays * tokens * width * size_of(h->kept) + 4.0 * tokens * (double)h->heads,
    };
    (void)snprintf(w.shape, sizeof(w.shape), "%lld x %lld, %lld heads of %lld", (long long)h->n.rows,
                   (long long)h->n.context, (long long)h->heads,
                   (long long)(h->heads ? h->n.width / h->heads : 0));
    return w;
}

static void measured_attention(struct device *d, const struct device_attention *h)
{
    struct profile_work w = work_of_attention("attention", h, 4.0, 2.0);
    measure_begin(d)->attention(d, h);
    measure_end(d, &w);
}

static void measured_attention_grad(struct device *d, const struct device_attention *h, const void *d_o,
                                    void *dqkv)
{
    struct profile_work w = work_of_attention("attention_grad", h, 8.0, 5.0);
    measure_begin(d)->attention_grad(d, h, d_o, dqkv);
    measure_end(d, &w);
}

static enum err_code measured_reserve(struct device *d, const struct device_sizes *sizes, struct err *e)
{
    struct profile *p = cuda_of(d)->profile;
    profile_restart(p);
    return profile_tables(p)->plain.reserve(d, sizes, e);
}

/* ---- losses and optimizers */

static void measured_cross_entropy(struct device *d, const struct device_classes *h)
{
    struct profile_work w = work_of_rows("cross_entropy", h->rows, h->stride,
                                         size_of(h->kept) + (h->dx ? size_of(h->type) : 0.0));
    measure_begin(d)->cross_entropy(d, h);
    measure_end(d, &w);
}

static void measured_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows,
                         int64_t cols, float by, struct device_tally *tally)
{
    struct profile_work w = work_of_rows("mse", rows, cols, 12.0);
    measure_begin(d)->mse(d, dx, x, y, rows, cols, by, tally);
    measure_end(d, &w);
}

static void measured_sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    measure_begin(d)->sum_squares(d, x, n, out);
    measure_bytes(d, "sum_squares", 4.0 * (double)n);
}

static void measured_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v,
                         size_t n)
{
    measure_begin(d)->sgd(d, h, p, g, v, n);
    measure_bytes(d, "sgd", (v ? 20.0 : 12.0) * (double)n);
}

static void measured_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                           float *v, size_t n)
{
    measure_begin(d)->adamw(d, h, p, g, m, v, n);
    measure_bytes(d, "adamw", 28.0 * (double)n);
}

/* Counts whole blocks, because the ranges are in device memory. */
static void measured_adamw_ranges(struct device *d, const struct device_adamw *h,
                                  const struct device_ranges *ranges, float *p, const float *g, float *m,
                                  float *v, void *narrowed)
{
    double floats = (double)ranges->blocks * DEVICE_RANGE_BLOCK;
    measure_begin(d)->adamw_ranges(d, h, ranges, p, g, m, v, narrowed);
    measure_bytes(d, narrowed ? "adamw and narrow" : "adamw", (narrowed ? 30.0 : 28.0) * floats);
}

static void measured_zero_ranges(struct device *d, const struct device_ranges *ranges, float *x)
{
    measure_begin(d)->zero_ranges(d, ranges, x);
    measure_bytes(d, "zero", 4.0 * (double)ranges->blocks * DEVICE_RANGE_BLOCK);
}

static void measured_muon(struct device *d, const struct device_muon *h, float *p, const float *g, float *m)
{
    struct profile_work w = {.name = "muon"};
    (void)snprintf(w.shape, sizeof(w.shape), "%zu matrices", h->count);
    measure_begin(d)->muon(d, h, p, g, m);
    measure_end(d, &w);
}

/* Operations without a function of their own (copies from and to the host, sums of one number) count as time between
 * operations. */
const struct device_ops *profile_operations(struct profile *p, const struct device_ops *plain)
{
    struct profile_tables *t = profile_tables(p);
    t->plain = t->measured = *plain;
    struct device_ops *ops = &t->measured;
    ops->record = NULL; /* inside a graph, events have no times */
    ops->recorded = NULL;
    ops->replay = NULL;
    ops->product = measured_product;
    ops->linear = measured_linear;
    ops->activation_grad = measured_activation_grad;
    ops->weight_grad = measured_weight_grad;
    ops->copy = measured_copy;
    ops->zero = measured_zero;
    ops->narrow = measured_narrow;
    ops->bias_grad = measured_bias_grad;
    ops->bias_activate_grad = measured_bias_activate_grad;
    ops->scale = measured_scale;
    ops->add = measured_add;
    ops->embed = measured_embed;
    ops->embed_grad = measured_embed_grad;
    ops->norm = measured_norm;
    ops->norm_grad = measured_norm_grad;
    ops->attention = measured_attention;
    ops->attention_grad = measured_attention_grad;
    ops->reserve = measured_reserve;
    ops->cross_entropy = measured_cross_entropy;
    ops->mse = measured_mse;
    ops->sum_squares = measured_sum_squares;
    ops->sgd = measured_sgd;
    ops->adamw = measured_adamw;
    ops->adamw_ranges = measured_adamw_ranges;
    ops->zero_ranges = measured_zero_ranges;
    ops->muon = measured_muon;
    return ops;
}
