/* Operations on tokens, divided into parts for the threads: most by ranges of tokens, whose column sums are
 * added up in order; attention by heads; the embedding's gradient by columns. */
#include "trainer/device/cpu/sequence.h"

#include "base/mem.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/dense.h"
#include "trainer/device/cpu/gemm_bf16.h"

struct work {
    const struct cpu_layers *layers;
    const struct cpu_attention *attention;
    enum device_activation kind;
    enum device_type type;
    const void *h;
    const float *x, *y;
    float *to, *sums;
    void *dz, *a;
    const void *d_o;
    void *dqkv;
    float *dwte, *dwpe;
    int64_t n, cols, parts, stride; /* n: tokens */
};

static void range_of(const struct work *w, int64_t part, int64_t *from, int64_t *to)
{
    *from = cpu_part_start(w->n, w->parts, part);
    *to = cpu_part_start(w->n, w->parts, part + 1);
}

/* w->type: what the operation rounds its results to, if any. */
static void sequence_run(struct device *d, struct work *w, int64_t parts, cpu_part_fn fn)
{
    const struct cpu_half *half = w->type == DEVICE_BF16 ? cpu_of(d)->half : NULL;
    w->layers = half ? half->layers : cpu_of(d)->set.layers;
    w->parts = parts;
    cpu_threads_run(&cpu_of(d)->threads, parts, fn, w);
}

/* ---- bias and activation */

static void bias_activate_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from, to;
    (void)thread;
    range_of(w, part, &from, &to);
    w->layers->bias_activate(w->kind, w->type, (char *)w->a + (size_t)(from * w->cols) * device_size(w->type),
                             w->to + from * w->cols, w->x, to - from, w->cols);
}

void sequence_linear(struct device *d, const struct device_linear *h)
{
    struct device_product product = {
        .type = h->type,
        .out = h->kept,
        .trans_b = h->trans_w,
        .m = h->rows,
        .n = h->out,
        .k = h->in,
        .a = h->x,
        .b = h->w,
        .c = h->z,
    };
    struct work w = {
        .kind = h->kind, .type = h->type, .a = h->a, .to = h->z, .x = h->bias, .n = h->rows, .cols = h->out};
    if (h->kept == DEVICE_BF16) {
        BUG_ON(h->a);
        dense_biased_product(d, &product, h->bias);
        return;
    }
    d->ops->product(d, &product);
    if (h->a)
        sequence_run(d, &w, cpu_even_parts(cpu_of(d), h->rows), bias_activate_part);
    else
        dense_bias(d, h->z, h->bias, h->rows, h->out);
}

static void bias_activate_grad_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from, to;
    (void)thread;
    range_of(w, part, &from, &to);
    size_t at = (size_t)(from * w->cols) * device_size(w->type);
    w->layers->bias_activate_grad(w->kind, w->type, (char *)w->dz + at, (char *)w->a + at,
                                  w->sums + part * w->stride, w->x + from * w->cols, w->y + from * w->cols,
                                  to - from, w->cols);
}

void sequence_bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                                 enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                                 const void *z, int64_t rows, int64_t cols)
{
    BUG_ON(kept != DEVICE_F32);
    struct work w = {.kind = kind, .type = type, .dz = dz, .a = a, .x = da, .y = z, .n = rows, .cols = cols};
    w.stride = cpu_rounded(cols, 16);
    w.sums = cpu_scratch(cpu_of(d), (size_t)(cpu_parts(rows) * w.stride) * sizeof(float));
    if (!w.sums)
        return;
    sequence_run(d, &w, cpu_parts(rows), bias_activate_grad_part);
    cpu_of(d)->set.kernels->fold(dbias, w.sums, w.parts, w.stride, cols);
}

/* ---- embedding */

static void embed_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from, to;
    (void)thread;
    range_of(w, part, &from, &to);
    w->layers->embed(w->h, w->x, w->y, w->to, from, to);
}

void sequence_embed(struct device *d, const struct device_embedding *h, const float *wte, const float *wpe,
                    float *x)
{
    struct work w = {.h = h, .x = wte, .y = wpe, .to = x, .n = h->n.rows * h->n.context};
    sequence_run(d, &w, cpu_even_parts(cpu_of(d), w.n), embed_part);
}

static void embed_mask_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from, to;
    (void)thread;
    range_of(w, part, &from, &to);
    w->layers->embed_mask(w->h, w->to, from, to);
}

static void embed_grad_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from = part * w->stride, to = from + w->stride < w->cols ? from + w->stride : w->cols;
    (void)thread;
    w->layers->embed_grad(w->h, w->dwte, w->dwpe, w->to, from, to);
}

void sequence_embed_grad(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                         void *dx)
{
    struct work w = {.h = h, .dwte = dwte, .dwpe = dwpe, .to = dx, .cols = h->n.width};
    int threads = cpu_of(d)->threads.count;
    BUG_ON(h->kept != DEVICE_F32);
    w.n = h->n.rows * h->n.context;
    if (h->dropout.p > 0.0f)
        sequence_run(d, &w, cpu_even_parts(cpu_of(d), w.n), embed_mask_part);
    w.stride = cpu_rounded((w.cols + threads - 1) / threads, 16);
    sequence_run(d, &w, (w.cols + w.stride - 1) / w.stride, embed_grad_part);
}

/* ---- layer norm */

static void norm_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from, to;
    (void)thread;
    range_of(w, part, &from, &to);
    w->layers->norm(w->h, from, to);
}

void sequence_norm(struct device *d, const struct device_norm *h)
{
    struct work w = {.h = h, .type = h->type, .n = h->n.rows * h->n.context};
    BUG_ON(h->kept != DEVICE_F32);
    sequence_run(d, &w, cpu_even_parts(cpu_of(d), w.n), norm_part);
}

static void norm_grad_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from, to;
    (void)thread;
    range_of(w, part, &from, &to);
    w->layers->norm_grad(w->h, from, to, w->sums + part * 3 * w->stride, w->stride);
}

void sequence_norm_grad(struct device *d, const struct device_norm_grad *h)
{
    const struct cpu_kernels *k = cpu_of(d)->set.kernels;
    int64_t width = h->n.width;
    struct work w = {
        .h = h, .type = h->type, .n = h->n.rows * h->n.context, .stride = cpu_rounded(width, 16)};
    BUG_ON(h->kept != DEVICE_F32);
    w.sums = cpu_scratch(cpu_of(d), (size_t)(cpu_parts(w.n) * 3 * w.stride) * sizeof(float));
    if (!w.sums)
        return;
    sequence_run(d, &w, cpu_parts(w.n), norm_grad_part);
    k->fold(h->dgain, w.sums, w.parts, 3 * w.stride, width);
    k->fold(h->dshift, w.sums + w.stride, w.parts, 3 * w.stride, width);
    if (h->dbias)
        k->fold(h->dbias, w.sums + 2 * w.stride, w.parts, 3 * w.stride, width);
}

/* ---- attention */

static void attention_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    const struct device_attention *h = w->h;
    w->attention->forward(h, part / h->heads, part % h->heads, w->sums + thread * w->stride);
}

static void attention_grad_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    const struct device_attention *h = w->h;
    w->attention->backward(h, part / h->heads, part % h->heads, w->d_o, w->dqkv,
                           w->sums + thread * w->stride);
}

static const struct cpu_attention *attention_for(struct device *d, enum device_type type)
{
    const struct cpu_device *c = cpu_of(d);
    return type == DEVICE_BF16 && d->attends_bf16 && c->half ? c->half->attention : c->set.attention;
}

/* Chooses the functions and their scratch memory. */
static bool attention_prepare(struct device *d, const struct device_attention *h, struct work *w)
{
    w->attention = attention_for(d, h->type);
    w->stride = cpu_rounded(w->attention->floats(h->n.context, h->n.width / h->heads), 16);
    w->sums = cpu_scratch(cpu_of(d), (size_t)(cpu_of(d)->threads.count * w->stride) * sizeof(float));
    return w->sums != NULL;
}

void sequence_attention(struct device *d, const struct device_attention *h)
{
    struct work w = {.h = h};
    BUG_ON(h->kept != DEVICE_F32 && !d->attends_bf16);
    if (attention_prepare(d, h, &w))
        sequence_run(d, &w, h->n.rows * h->heads, attention_part);
}

void sequence_attention_grad(struct device *d, const struct device_attention *h, const void *d_o, void *dqkv)
{
    struct work w = {.h = h, .d_o = d_o, .dqkv = dqkv};
    BUG_ON(h->kept != DEVICE_F32 && !d->attends_bf16);
    if (attention_prepare(d, h, &w))
        sequence_run(d, &w, h->n.rows * h->heads, attention_grad_part);
}

/* ---- room */

/* The bytes of both factors of the largest product as floats. It is a product of a layer, or of the head. */
static size_t widened_bytes(const struct device_sizes *s)
{
    int64_t tokens = s->n.rows * s->n.context, w = s->n.width;
    int64_t layer = 4 * w * (tokens > w ? 2 * tokens : tokens + w);
    int64_t embedding = s->vocab * w, logits = s->head_rows * s->vocab, states = s->head_rows * w;
    int64_t head = embedding + logits + states;
    return (size_t)((layer > head ? layer : head) + 32) * sizeof(float);
}

enum err_code sequence_reserve(struct device *d, const struct device_sizes *s, struct err *e)
{
    struct cpu_device *c = cpu_of(d);
    int64_t parts = cpu_parts(s->n.rows * s->n.context), sums = parts * 4 * cpu_rounded(s->n.width, 16);
    int64_t floats = attention_for(d, s->type)->floats(s->n.context, s->n.width / s->heads);
    int64_t strips = c->threads.count * cpu_rounded(floats, 16);
    size_t bytes = (size_t)(sums > strips ? sums : strips) * sizeof(float);
    size_t tallies = (size_t)s->head_rows * sizeof(struct device_tally);
    if (!cpu_scratch(c, bytes > tallies ? bytes : tallies))
        return d->ops->wait(d, e);
    if (s->type == DEVICE_BF16 && !d->attends_bf16 && !cpu_grow(c, &c->wide, widened_bytes(s)))
        return d->ops->wait(d, e);
    return ERR_OK;
}
