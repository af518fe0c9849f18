/* The operations of a transformer except products and attention: embedding, residual and layer norm, bias and
 * activation. Compiled once for each instruction set, with the same bits, as kernels.c is, and once more for `precision: bf16`
 * on CPUs that multiply bf16, with fused multiply-adds. A call works on tokens from..to-1. Sums over tokens are made for each
 * part, and the caller adds up the parts in order. */
#include "trainer/device/cpu/activation.h"
#include "trainer/device/cpu/dropout.h"
#include "trainer/device/cpu/sets.h"

#define EPSILON 1e-5f

/* Runs through a row in vectors: calls body(..., j, 16), with 16 as a constant, and at the end body(..., j,
 * rest). */
#define COLUMNS(width, body, ...)                                                                            \
    do {                                                                                                     \
        int64_t j_ = 0;                                                                                      \
        for (; j_ + LANES <= (width); j_ += LANES)                                                           \
            body(__VA_ARGS__, j_, LANES);                                                                    \
        if (j_ < (width))                                                                                    \
            body(__VA_ARGS__, j_, (width)-j_);                                                               \
    } while (0)

VEC_INLINE vf row_load(const float *p, int64_t n)
{
    return n >= LANES ? vec_load(p) : vec_load_part(p, n);
}
VEC_INLINE void row_store(float *p, vf v, int64_t n)
{
    if (n >= LANES)
        vec_store(p, v);
    else
        vec_store_part(p, v, n);
}
VEC_INLINE void store_as(enum device_type type, void *p, int64_t at, vf v, int64_t n)
{
    if (type == DEVICE_F32)
        row_store((float *)p + at, v, n);
    else
        vec_store_bf16((uint16_t *)p + at, v, n);
}

/* Returns the mask of column j. Computes the mask of a chunk when j reaches its first column. */
VEC_INLINE vf mask_at(float *mask, const struct device_dropout *h, int64_t row, int64_t line, int64_t j)
{
    if (j % DROPOUT_CHUNK == 0)
        dropout_mask(mask, h, row, line, j);
    return vec_load(mask + j % DROPOUT_CHUNK);
}

/* ---- embedding */

struct line { /* a token's row number, and the mask of the current chunk */
    const struct device_dropout *dropout;
    int64_t row, line;
    float mask[DROPOUT_CHUNK];
};

VEC_INLINE struct line line_of(const struct device_dropout *h, const struct device_tokens *n, int64_t t)
{
    struct line l;
    l.dropout = h;
    if (h->p > 0.0f) {
        l.row = t / n->context;
        l.line = t % n->context;
    }
    return l;
}

VEC_INLINE vf mask_dropped(struct line *l, vf v, int64_t j)
{
    return l->dropout->p > 0.0f ? v * mask_at(l->mask, l->dropout, l->row, l->line, j) : v;
}

VEC_INLINE void embed_columns(struct line *l, float *x, const float *token, const float *place, int64_t j,
                              int64_t n)
{
    row_store(x + j, mask_dropped(l, row_load(token + j, n) + row_load(place + j, n), j), n);
}

static void k_embed(const struct device_embedding *h, const float *wte, const float *wpe, float *x,
                    int64_t from, int64_t to)
{
    int64_t width = h->n.width;
    for (int64_t t = from; t < to; t++) {
        const float *token = wte + h->token[t] * width, *place = wpe + t % h->n.context * width;
        struct line l = line_of(&h->dropout, &h->n, t);
        COLUMNS(width, embed_columns, &l, x + t * width, token, place);
    }
}

VEC_INLINE void mask_columns(struct line *l, float *dx, int64_t j, int64_t n)
{
    row_store(dx + j, mask_dropped(l, row_load(dx + j, n), j), n);
}

static void k_embed_mask(const struct device_embedding *h, float *dx, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to; t++) {
        struct line l = line_of(&h->dropout, &h->n, t);
        COLUMNS(h->n.width, mask_columns, &l, dx + t * h->n.width);
    }
}

/* Adds up columns from..to-1 of all tokens, in the order of the tokens. */
static void k_embed_grad(const struct device_embedding *h, float *restrict dwte, float *restrict dwpe,
                         const float *restrict dx, int64_t from, int64_t to)
{
    int64_t width = h->n.width, tokens = h->n.rows * h->n.context;
    for (int64_t t = 0; t < tokens; t++) {
        const float *restrict g = dx + t * width;
        float *restrict token = dwte + h->token[t] * width;
        float *restrict place = dwpe + t % h->n.context * width;
        for (int64_t j = from; j < to; j++) {
            token[j] += g[j];
            place[j] += g[j];
        }
    }
}

/* ---- residual and layer norm */

struct norm_row {
    const struct device_norm *h;
    /* a pointer: the mask is made by a function call, and values that the call might change cannot stay in
     * registers */
    struct line *line;
    const float *residual, *delta;
    float *x;
    float mean, inverse;
    vf sum, squares;
    int64_t t;
};

VEC_INLINE void norm_add(struct norm_row *r, int64_t j, int64_t n)
{
    vf v = row_load(r->residual + j, n);
    if (r->delta) {
        v += mask_dropped(r->line, row_load(r->delta + j, n) + row_load(r->h->bias + j, n), j);
        row_store(r->x + j, v, n);
    }
    r->sum += v;
}

VEC_INLINE void row_squares(struct norm_row *r, int64_t j, int64_t n)
{
    vf away = row_load(r->x + j, n) - r->mean;
    if (n < LANES) { /* lanes after the end of the row do not count */
        float part[LANES];
        vec_store(part, away);
        away = vec_load_part(part, n);
    }
    r->squares += away * away;
}

VEC_INLINE void norm_write(struct norm_row *r, enum device_type type, int64_t j, int64_t n)
{
    vf y = (row_load(r->x + j, n) - r->mean) * r->inverse * row_load(r->h->gain + j, n) +
           row_load(r->h->shift + j, n);
    store_as(type, r->h->y, r->t * r->h->n.width + j, y, n);
}

static void k_norm(const struct device_norm *h, int64_t from, int64_t to)
{
    int64_t width = h->n.width;
    for (int64_t t = from; t < to; t++) {
        struct line line = line_of(&h->dropout, &h->n, t);
        struct norm_row r = {.h = h, .line = &line, .t = t};
        r.residual = h->residual + t * width;
        r.delta = h->delta ? (const float *)h->delta + t * width : NULL;
        r.x = h->x + t * width;
        COLUMNS(width, norm_add, &r);
        r.mean = vec_sum(r.sum) / (float)width;
        COLUMNS(width, row_squares, &r);
        r.inverse = 1.0f / sqrtf(vec_sum(r.squares) / (float)width + EPSILON);
        if (h->type == DEVICE_F32)
            COLUMNS(width, norm_write, &r, DEVICE_F32);
        else
            COLUMNS(width, norm_write, &r, DEVICE_BF16);
        h->stats[2 * t] = r.mean;
        h->stats[2 * t + 1] = r.inverse;
    }
}

/* The gradient of a layer norm. With n = (x - mean) / deviation and w = dy gain: dx = (w - mean(w) - n mean(w
 * n)) / deviation, dgain = dy n, dshift = dy. sums: the column sums of gain, shift and bias, `stride`
 * apart. */
struct norm_grad_row {
    const struct device_norm_grad *h;
    struct line *line;
    const float *dy, *x;
    float *dx, *sums;
    int64_t stride, t;
    float mean, inverse, a, b;
    vf sum, product;
};

VEC_INLINE void norm_grad_sums(struct norm_grad_row *r, int64_t j, int64_t n)
{
    vf g = row_load(r->dy + j, n), normal = (row_load(r->x + j, n) - r->mean) * r->inverse;
    vf w = g * row_load(r->h->gain + j, n);
    r->sum += w;
    r->product += w * normal;
    vec_store(r->sums + j, vec_load(r->sums + j) + g * normal);
    vec_store(r->sums + r->stride + j, vec_load(r->sums + r->stride + j) + g);
}

VEC_INLINE void norm_grad_write(struct norm_grad_row *r, enum device_type type, int64_t j, int64_t n)
{
    const struct device_norm_grad *h = r->h;
    vf normal = (row_load(r->x + j, n) - r->mean) * r->inverse;
    vf d = (row_load(r->dy + j, n) * row_load(h->gain + j, n) - r->a - normal * r->b) * r->inverse;
    if (!h->set)
        d += row_load(r->dx + j, n);
    row_store(r->dx + j, d, n);
    if (!h->ddelta && !h->dbias)
        return;
    d = mask_dropped(r->line, d, j);
    if (h->ddelta)
        store_as(type, h->ddelta, r->t * h->n.width + j, d, n);
    vec_store(r->sums + 2 * r->stride + j, vec_load(r->sums + 2 * r->stride + j) + d);
}

/* In `sums`, columns are padded to whole vectors. The values after the end of a row are never added up. */
static void k_norm_grad(const struct device_norm_grad *h, int64_t from, int64_t to, float *sums,
                        int64_t stride)
{
    int64_t width = h->n.width;
    memset(sums, 0, (size_t)(3 * stride) * sizeof(float));
    for (int64_t t = from; t < to; t++) {
        struct line line = line_of(&h->dropout, &h->n, t);
        struct norm_grad_row r = {.h = h, .line = &line, .sums = sums, .stride = stride};
        r.t = t;
        r.dy = (const float *)h->dy + t * width;
        r.x = h->x + t * width;
        r.dx = (float *)h->dx + t * width;
        r.mean = h->stats[2 * t];
        r.inverse = h->stats[2 * t + 1];
        COLUMNS(width, norm_grad_sums, &r);
        r.a = vec_sum(r.sum) / (float)width;
        r.b = vec_sum(r.product) / (float)width;
        if (h->type == DEVICE_F32)
            COLUMNS(width, norm_grad_write, &r, DEVICE_F32);
        else
            COLUMNS(width, norm_grad_write, &r, DEVICE_BF16);
    }
}

/* ---- bias and activation */

VEC_INLINE void activate_columns(enum device_activation kind, enum device_type type, void *a, int64_t at,
                                 float *z, const float *bias, int64_t j, int64_t n)
{
    vf v = row_load(z + j, n) + row_load(bias + j, n);
    row_store(z + j, v, n);
    store_as(type, a, at + j, activation_value(kind, v), n);
}

VEC_INLINE void bias_activate_all(enum device_activation kind, enum device_type type, void *a, float *z,
                                  const float *bias, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        COLUMNS(cols, activate_columns, kind, type, a, i * cols, z + i * cols, bias);
}

VEC_INLINE void activate_grad_columns(enum device_activation kind, enum device_type type, void *dz, void *a,
                                      float *sums, const float *da, const float *z, int64_t at, int64_t j,
                                      int64_t n)
{
    vf value, slope = activation_slope(kind, row_load(z + at + j, n), &value);
    vf d = row_load(da + at + j, n) * slope;
    store_as(type, dz, at + j, d, n);
    store_as(type, a, at + j, value, n);
    vec_store(sums + j, vec_load(sums + j) + d);
}

VEC_INLINE void bias_activate_grad_all(enum device_activation kind, enum device_type type, void *dz, void *a,
                                       float *sums, const float *da, const float *z, int64_t rows,
                                       int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        COLUMNS(cols, activate_grad_columns, kind, type, dz, a, sums, da, z, i * cols);
}

static void k_bias_activate(enum device_activation kind, enum device_type type, void *a, float *z,
                            const float *bias, int64_t rows, int64_t cols)
{
    if (type == DEVICE_F32)
        ACTIVATION_EACH(kind, bias_activate_all, DEVICE_F32, a, z, bias, rows, cols);
    else
        ACTIVATION_EACH(kind, bias_activate_all, DEVICE_BF16, a, z, bias, rows, cols);
}

/* Columns of `sums` are padded to whole vectors. */
static void k_bias_activate_grad(enum device_activation kind, enum device_type type, void *dz, void *a,
                                 float *sums, const float *da, const float *z, int64_t rows, int64_t cols)
{
    memset(sums, 0, (size_t)((cols + LANES - 1) / LANES * LANES) * sizeof(float));
    if (type == DEVICE_F32)
        ACTIVATION_EACH(kind, bias_activate_grad_all, DEVICE_F32, dz, a, sums, da, z, rows, cols);
    else
        ACTIVATION_EACH(kind, bias_activate_grad_all, DEVICE_BF16, dz, a, sums, da, z, rows, cols);
}

const struct cpu_layers DDP_LAYERS = {
    .embed = k_embed,
    .embed_mask = k_embed_mask,
    .embed_grad = k_embed_grad,
    .norm = k_norm,
    .norm_grad = k_norm_grad,
    .bias_activate = k_bias_activate,
    .bias_activate_grad = k_bias_activate_grad,
};
