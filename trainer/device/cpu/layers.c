/* What a transformer wants besides products and attention: embedding, residual and layer norm, bias and
 * activation. Compiled once per instruction set, to the same bits, as kernels.c is. Tokens from..to-1 at a
 * time; sums over tokens come out per part, and the caller folds the parts in order. */
#include "trainer/device/cpu/activation.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/dropout.h"

#define EPSILON 1e-5f

/* Any sixteen or fewer of a row. */
VEC_INLINE vf load(const float *p, int64_t n)
{
    return n >= LANES ? vec_load(p) : vec_load_part(p, n);
}
VEC_INLINE void store(float *p, vf v, int64_t n)
{
    if (n >= LANES)
        vec_store(p, v);
    else
        vec_store_part(p, v, n);
}
VEC_INLINE void store_as(enum device_type type, void *p, int64_t at, vf v, int64_t n)
{
    if (type == DEVICE_F32)
        store((float *)p + at, v, n);
    else
        vec_store_bf16((uint16_t *)p + at, v, n < LANES ? n : LANES);
}

/* The mask of the chunk that j lies in, made when j enters it. */
VEC_INLINE vf mask_at(float *mask, const struct device_dropout *h, int64_t row, int64_t line, int64_t j)
{
    if (j % DROPOUT_CHUNK == 0)
        dropout_mask(mask, h, row, line, j);
    return vec_load(mask + j % DROPOUT_CHUNK);
}

/* ---- embedding */

static void k_embed(const struct device_embedding *h, const float *wte, const float *wpe, float *x,
                    int64_t from, int64_t to)
{
    int64_t width = h->n.width;
    float mask[DROPOUT_CHUNK];
    for (int64_t t = from; t < to; t++) {
        const float *token = wte + h->token[t] * width, *place = wpe + t % h->n.context * width;
        for (int64_t j = 0; j < width; j += LANES) {
            vf v = load(token + j, width - j) + load(place + j, width - j);
            if (h->dropout.p > 0.0f)
                v *= mask_at(mask, &h->dropout, t / h->n.context, t % h->n.context, j);
            store(x + t * width + j, v, width - j);
        }
    }
}

static void k_embed_mask(const struct device_embedding *h, float *dx, int64_t from, int64_t to)
{
    int64_t width = h->n.width;
    float mask[DROPOUT_CHUNK];
    for (int64_t t = from; t < to; t++)
        for (int64_t j = 0; j < width; j += LANES) {
            float *p = dx + t * width + j;
            store(p, load(p, width - j) * mask_at(mask, &h->dropout, t / h->n.context, t % h->n.context, j),
                  width - j);
        }
}

/* Columns from..to-1 of all tokens, in their order. */
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

VEC_INLINE void norm_row(const struct device_norm *h, int64_t t)
{
    int64_t width = h->n.width;
    const float *residual = h->residual + t * width, *delta = h->delta ? h->delta + t * width : NULL;
    float *x = h->x + t * width, mask[DROPOUT_CHUNK];
    vf sum = {0}, squares = {0};
    for (int64_t j = 0; j < width; j += LANES) {
        vf v = load(residual + j, width - j);
        if (delta) {
            vf added = load(delta + j, width - j) + load(h->bias + j, width - j);
            if (h->dropout.p > 0.0f)
                added *= mask_at(mask, &h->dropout, t / h->n.context, t % h->n.context, j);
            v += added;
            store(x + j, v, width - j);
        }
        sum += v;
    }
    float mean = vec_sum(sum) / (float)width;
    const float *from = delta ? x : residual;
    for (int64_t j = 0; j < width; j += LANES) {
        vf away = load(from + j, width - j) - mean;
        if (width - j < LANES) { /* zeros behind the row are no elements of it */
            float part[LANES];
            vec_store(part, away);
            away = vec_load_part(part, width - j);
        }
        squares += away * away;
    }
    float inverse = 1.0f / sqrtf(vec_sum(squares) / (float)width + EPSILON);
    for (int64_t j = 0; j < width; j += LANES) {
        vf y = (load(from + j, width - j) - mean) * inverse * load(h->gain + j, width - j);
        store_as(h->type, h->y, t * width + j, y + load(h->shift + j, width - j), width - j);
    }
    h->stats[2 * t] = mean;
    h->stats[2 * t + 1] = inverse;
}

static void k_norm(const struct device_norm *h, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to; t++)
        norm_row(h, t);
}

/* With n = (x - mean) / deviation and w = dy gain: d x = (w - mean(w) - n mean(w n)) / deviation, d gain = dy
 * n, d shift = dy. sums: gain's, shift's and the bias' columns, `stride` apart. */
VEC_INLINE void norm_grad_row(const struct device_norm_grad *h, int64_t t, float *sums, int64_t stride)
{
    int64_t width = h->n.width;
    const float *dy = h->dy + t * width, *x = h->x + t * width;
    float mean = h->stats[2 * t], inverse = h->stats[2 * t + 1], mask[DROPOUT_CHUNK];
    vf sum = {0}, product = {0};
    for (int64_t j = 0; j < width; j += LANES) {
        vf g = load(dy + j, width - j), n = (load(x + j, width - j) - mean) * inverse;
        vf w = g * load(h->gain + j, width - j);
        sum += w;
        product += w * n;
        vec_store(sums + j, vec_load(sums + j) + g * n);
        vec_store(sums + stride + j, vec_load(sums + stride + j) + g);
    }
    float a = vec_sum(sum) / (float)width, b = vec_sum(product) / (float)width;
    float *dx = h->dx + t * width;
    for (int64_t j = 0; j < width; j += LANES) {
        vf n = (load(x + j, width - j) - mean) * inverse;
        vf d = (load(dy + j, width - j) * load(h->gain + j, width - j) - a - n * b) * inverse;
        if (!h->set)
            d += load(dx + j, width - j);
        store(dx + j, d, width - j);
        if (!h->ddelta && !h->dbias)
            continue;
        if (h->dropout.p > 0.0f)
            d *= mask_at(mask, &h->dropout, t / h->n.context, t % h->n.context, j);
        if (h->ddelta)
            store_as(h->type, h->ddelta, t * width + j, d, width - j);
        vec_store(sums + 2 * stride + j, vec_load(sums + 2 * stride + j) + d);
    }
}

/* Columns are padded to whole vectors in sums; what lies behind a row's end is never folded. */
static void k_norm_grad(const struct device_norm_grad *h, int64_t from, int64_t to, float *sums,
                        int64_t stride)
{
    memset(sums, 0, (size_t)(3 * stride) * sizeof(float));
    for (int64_t t = from; t < to; t++)
        norm_grad_row(h, t, sums, stride);
}

/* ---- bias and activation */

VEC_INLINE void bias_activate_all(enum device_activation kind, enum device_type type, void *a, float *z,
                                  const float *bias, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += LANES) {
            vf v = load(z + i * cols + j, cols - j) + load(bias + j, cols - j);
            store(z + i * cols + j, v, cols - j);
            store_as(type, a, i * cols + j, activation_value(kind, v), cols - j);
        }
}

VEC_INLINE void bias_activate_grad_all(enum device_activation kind, enum device_type type, void *dz, void *a,
                                       float *sums, const float *da, const float *z, int64_t rows,
                                       int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += LANES) {
            int64_t at = i * cols + j, n = cols - j;
            vf value, slope = activation_slope(kind, load(z + at, n), &value);
            vf d = load(da + at, n) * slope;
            store_as(type, dz, at, d, n);
            store_as(type, a, at, value, n);
            vec_store(sums + j, vec_load(sums + j) + d);
        }
}

static void k_bias_activate(enum device_activation kind, enum device_type type, void *a, float *z,
                            const float *bias, int64_t rows, int64_t cols)
{
    if (type == DEVICE_F32)
        ACTIVATION_EACH(kind, bias_activate_all, DEVICE_F32, a, z, bias, rows, cols);
    else
        ACTIVATION_EACH(kind, bias_activate_all, DEVICE_BF16, a, z, bias, rows, cols);
}

/* sums holds whole vectors. */
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
