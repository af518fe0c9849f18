/* Element-wise operations and optimizers. The file is compiled once for each instruction set; DDP_KERNELS
 * names the table of functions. Bits must not depend on the instruction set: there is no contraction into
 * fused multiply-adds (-ffp-contract=off), no library function that has variants, and sums are taken in
 * sixteen lanes (vec.h). The caller divides the work into parts, whose number does not depend on the number
 * of threads. */
#include "trainer/device/cpu/activation.h"
#include "trainer/device/cpu/sets.h"

static void k_bias(float *restrict y, const float *restrict b, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            y[i * cols + j] += b[j];
}

static void k_column_sums(float *restrict sums, const float *restrict dy, int64_t rows, int64_t cols)
{
    memset(sums, 0, (size_t)cols * sizeof(float));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            sums[j] += dy[i * cols + j];
}

static void k_column_sums_bf16(float *restrict sums, const uint16_t *restrict dy, int64_t rows, int64_t cols)
{
    memset(sums, 0, (size_t)cols * sizeof(float));
    for (int64_t i = 0; i < rows; i++, dy += cols) {
        int64_t j = 0;
        for (; j + LANES <= cols; j += LANES)
            vec_store(sums + j, vec_load(sums + j) + vec_load_bf16(dy + j));
        for (; j < cols; j++) {
            uint32_t bits = (uint32_t)dy[j] << 16;
            float x;
            memcpy(&x, &bits, sizeof(x));
            sums[j] += x;
        }
    }
}

static void k_fold(float *restrict to, const float *restrict parts, int64_t count, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = parts[i];
        for (int64_t p = 1; p < count; p++)
            sum += parts[p * stride + i];
        to[i] += sum;
    }
}

VEC_INLINE void activate_all(enum device_activation kind, float *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vec_store(y + i, activation_value(kind, vec_load(x + i)));
    vec_store_part(y + i, activation_value(kind, vec_load_part(x + i, n - i)), n - i);
}

VEC_INLINE void activate_grad_all(enum device_activation kind, float *dx, const float *dy, const float *x,
                                  int64_t n)
{
    vf value;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vec_store(dx + i, vec_load(dy + i) * activation_slope(kind, vec_load(x + i), &value));
    vf slope = activation_slope(kind, vec_load_part(x + i, n - i), &value);
    vec_store_part(dx + i, vec_load_part(dy + i, n - i) * slope, n - i);
}

static void k_activate(enum device_activation kind, float *y, const float *x, size_t n)
{
    ACTIVATION_EACH(kind, activate_all, y, x, (int64_t)n);
}

static void k_activate_grad(enum device_activation kind, float *dx, const float *dy, const float *x, size_t n)
{
    ACTIVATION_EACH(kind, activate_grad_all, dx, dy, x, (int64_t)n);
}

static void k_narrow(uint16_t *restrict to, const float *restrict x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vec_store_bf16(to + i, vec_load(x + i), LANES);
    for (; i < n; i++)
        to[i] = vec_narrow(x[i]);
}

static void k_widen(float *restrict to, const uint16_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(&to[i], &bits, sizeof(bits));
    }
}

/* ---- losses */

static float row_top(const float *x, int64_t n)
{
    vf top = vec_all(-INFINITY);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        top = vec_max(vec_load(x + j), top); /* vec_max ignores a NaN here; the sum below will be NaN */
    float most = vec_top(top);
    for (; j < n; j++)
        most = x[j] > most ? x[j] : most;
    return most;
}

/* Replaces x by e^(x - top) and returns the sum. If any element of the row is NaN, the sum is NaN. */
static float row_exp(float *x, int64_t n, float top)
{
    vf sum = {0};
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        vf e = vec_exp(vec_load(x + j) - top);
        vec_store(x + j, e);
        sum += e;
    }
    if (j < n) {
        vf e = vec_exp(vec_load_part(x + j, n - j) - top);
        vec_store_part(x + j, e, n - j);
        sum += vec_load_part(x + j, n - j);
    }
    return vec_sum(sum);
}

/* Whether the label's output is the largest, or the first of several equal largest ones. */
static bool row_correct(const float *x, float top, int32_t label)
{
    if (x[label] != top)
        return false;
    for (int32_t j = 0; j < label; j++)
        if (x[j] == top)
            return false;
    return true;
}

static void row_gradient(enum device_type type, void *dx, const float *e, int64_t n, float factor,
                         int32_t label, float scale)
{
    float at_label = e[label] * factor - scale;
    if (type == DEVICE_F32) {
        float *out = dx;
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES)
            vec_store(out + j, vec_load(e + j) * factor);
        for (; j < n; j++)
            out[j] = e[j] * factor;
        out[label] = at_label;
    } else {
        uint16_t *restrict out = dx;
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES)
            vec_store_bf16(out + j, vec_load(e + j) * factor, LANES);
        for (; j < n; j++)
            out[j] = vec_narrow(e[j] * factor);
        out[label] = vec_narrow(at_label);
    }
}

static void row_pad(enum device_type type, void *dx, int64_t classes, int64_t stride)
{
    size_t size = device_size(type);
    memset((char *)dx + (size_t)classes * size, 0, (size_t)(stride - classes) * size);
}

static void k_cross_entropy(const struct device_classes *h, int64_t from, int64_t to,
                            struct device_tally *rows)
{
    for (int64_t i = from; i < to; i++) {
        float *row = (float *)h->x + i * h->stride;
        float top = row_top(row, h->classes), at_label = row[h->label[i]];
        bool correct = row_correct(row, top, h->label[i]);
        float sum = row_exp(row, h->classes, top);
        rows[i - from] =
            (struct device_tally){.loss = h->weight * ((double)(top - at_label) + log((double)sum)),
                                  .correct = correct ? h->weight : 0.0};
        if (!h->dx)
            continue;
        void *dx = (char *)h->dx + (size_t)(i * h->stride) * device_size(h->type);
        row_gradient(h->type, dx, row, h->classes, h->scale / sum, h->label[i], h->scale);
        row_pad(h->type, dx, h->classes, h->stride);
    }
}

static void k_mse(float *dx, const float *x, const float *y, int64_t rows, int64_t cols, float scale,
                  struct device_tally *tallies)
{
    float factor = 2.0f * scale / (float)cols;
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < cols; j++) {
            float diff = x[i * cols + j] - y[i * cols + j];
            sum += (double)diff * (double)diff;
            if (dx)
                dx[i * cols + j] = diff * factor;
        }
        tallies[i] = (struct device_tally){.loss = sum / (double)cols};
    }
}

/* ---- optimizers */

static double k_sum_squares(const float *x, size_t n)
{
    double total = 0.0;
    size_t i = 0;
    while (i + LANES <= n) {
        vf part = {0};
        size_t end = n - i > 4096 ? i + 4096 : i + (n - i) / LANES * LANES;
        for (; i < end; i += LANES)
            part += vec_load(x + i) * vec_load(x + i);
        for (int l = 0; l < LANES; l++)
            total += (double)part[l];
    }
    for (; i < n; i++)
        total += (double)(x[i] * x[i]);
    return total;
}

static void k_scale(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

/* A block of parameters is narrowed after its update, while it is in the L1 cache. Loops that do both are not vectorized. */
#define NARROW_BLOCK ((size_t)1024)
static size_t block_count(size_t n, size_t from)
{
    return n - from < NARROW_BLOCK ? n - from : NARROW_BLOCK;
}

static void sgd_block(const struct device_sgd *h, float *restrict p, const float *restrict g,
                      float *restrict v, size_t n)
{
    const float lr = h->lr, mu = h->momentum, decay = h->weight_decay;
    const float scale = h->scale ? *h->scale : 1.0f;
    if (mu == 0.0f) {
        for (size_t i = 0; i < n; i++)
            p[i] -= lr * (g[i] * scale + decay * p[i]);
    } else if (h->nesterov) {
        for (size_t i = 0; i < n; i++) {
            float d = g[i] * scale + decay * p[i];
            v[i] = mu * v[i] + d;
            p[i] -= lr * (d + mu * v[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            v[i] = mu * v[i] + (g[i] * scale + decay * p[i]);
            p[i] -= lr * v[i];
        }
    }
}

static void k_sgd(const struct device_sgd *h, float *p, const float *g, float *v, uint16_t *narrowed,
                  size_t n)
{
    if (!narrowed) {
        sgd_block(h, p, g, v, n);
        return;
    }
    for (size_t i = 0; i < n; i += NARROW_BLOCK) {
        sgd_block(h, p + i, g + i, v ? v + i : NULL, block_count(n, i));
        k_narrow(narrowed + i, p + i, block_count(n, i));
    }
}

static void adamw_block(const struct device_adamw *h, float *restrict p, const float *restrict g,
                        float *restrict m, float *restrict v, size_t n)
{
    const float b1 = h->beta1, b2 = h->beta2, c1 = 1.0f - h->beta1, c2 = 1.0f - h->beta2;
    const float keep = 1.0f - h->lr * h->weight_decay, step = h->lr / h->correction1;
    const float root = 1.0f / sqrtf(h->correction2), eps = h->eps;
    const float scale = h->scale ? *h->scale : 1.0f;
    for (size_t i = 0; i < n; i++) {
        float d = g[i] * scale;
        m[i] = b1 * m[i] + c1 * d;
        v[i] = b2 * v[i] + c2 * d * d;
        p[i] = keep * p[i] - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

static void k_adamw(const struct device_adamw *h, float *p, const float *g, float *m, float *v,
                    uint16_t *narrowed, size_t n)
{
    if (!narrowed) {
        adamw_block(h, p, g, m, v, n);
        return;
    }
    for (size_t i = 0; i < n; i += NARROW_BLOCK) {
        adamw_block(h, p + i, g + i, m + i, v + i, block_count(n, i));
        k_narrow(narrowed + i, p + i, block_count(n, i));
    }
}

const struct cpu_kernels DDP_KERNELS = {
    .bias = k_bias,
    .column_sums = k_column_sums,
    .column_sums_bf16 = k_column_sums_bf16,
    .fold = k_fold,
    .activate = k_activate,
    .activate_grad = k_activate_grad,
    .narrow = k_narrow,
    .widen = k_widen,
    .cross_entropy = k_cross_entropy,
    .mse = k_mse,
    .sum_squares = k_sum_squares,
    .scale = k_scale,
    .sgd = k_sgd,
    .adamw = k_adamw,
};
