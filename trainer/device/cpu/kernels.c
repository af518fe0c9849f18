/* Element-wise operations, written so that compilers vectorise them; compiled once per instruction set with
 * DDP_KERNELS naming the table. Bits must not depend on that: no contraction into fused multiply-adds
 * (-ffp-contract=off), no library functions whose variants differ, and sums in LANES partial sums that are
 * folded in a fixed order whatever the vector width is. */
#include <math.h>
#include <string.h>

#include "trainer/device/cpu/cpu.h"

#define LANES 16

/* e^x by Cody and Waite's reduction x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial for e^r with the
 * coefficients of the Taylor series to r^7: within 2 ulp for normal results. Clamped to finite results, so a
 * NaN is carried by the selects at the end. */
static inline float fast_exp(float x)
{
    float c = x > -87.0f
                  ? x
                  : -87.0f; /* a NaN goes to the clamp: its conversion to an integer would be undefined */
    c = c > 88.0f ? 88.0f : c;
    float shifted =
        c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer in the low bits */
    float n = shifted - 12582912.0f;
    float r = c - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    union {
        int32_t i;
        float f;
    } power = {.i = ((int32_t)n + 127) * (1 << 23)};
    float y = p * power.f;
    return x == x ? y : x;
}

/* tanh x = 1 - 2 / (e^2x + 1): absolute error below 2e-7. */
static inline float fast_tanh(float x)
{
    return 1.0f - 2.0f / (fast_exp(2.0f * x) + 1.0f);
}

/* GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415). */
#define GELU_A 0.7978845608f /* sqrt(2 / pi) */
#define GELU_B 0.044715f

static inline float gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + fast_tanh(GELU_A * (x + GELU_B * x * x * x)));
}

static inline float gelu_tanh_slope(float x)
{
    float t = fast_tanh(GELU_A * (x + GELU_B * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * GELU_A * (1.0f + 3.0f * GELU_B * x * x);
}

/* Phi(x), the normal distribution, by formula 7.1.26 of Abramowitz and Stegun for erf, which is good to
 * 1.5e-7 absolute; *density is exp(-x^2 / 2) / sqrt(2 pi). */
static inline float normal_cdf(float x, float *density)
{
    float a = fabsf(x) * 0.70710678f, e = fast_exp(-a * a);
    float t = 1.0f / (1.0f + 0.3275911f * a);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float half_tail = 0.5f * p * t * e;
    *density = 0.39894228f * e;
    return x > 0.0f ? 1.0f - half_tail : half_tail;
}

static inline float gelu(float x)
{
    float density;
    return x * normal_cdf(x, &density);
}

static inline float gelu_slope(float x)
{
    float density, cdf = normal_cdf(x, &density);
    return cdf + x * density;
}

static void k_bias(float *restrict y, const float *restrict b, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            y[i * cols + j] += b[j];
}

static void k_bias_grad(float *restrict db, const float *restrict dy, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            db[j] += dy[i * cols + j];
}

static void k_activate(enum device_activation kind, float *y, const float *x, size_t n)
{
    switch (kind) {
    case DEVICE_RELU:
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] < 0.0f ? 0.0f : x[i];
        break;
    case DEVICE_GELU_TANH:
        for (size_t i = 0; i < n; i++)
            y[i] = gelu_tanh(x[i]);
        break;
    case DEVICE_GELU:
        for (size_t i = 0; i < n; i++)
            y[i] = gelu(x[i]);
        break;
    case DEVICE_TANH:
        for (size_t i = 0; i < n; i++)
            y[i] = fast_tanh(x[i]);
        break;
    }
}

static void k_activate_grad(enum device_activation kind, float *dx, const float *dy, const float *x, size_t n)
{
    switch (kind) {
    case DEVICE_RELU:
        for (size_t i = 0; i < n; i++)
            dx[i] = x[i] > 0.0f ? dy[i] : 0.0f;
        break;
    case DEVICE_GELU_TANH:
        for (size_t i = 0; i < n; i++)
            dx[i] = dy[i] * gelu_tanh_slope(x[i]);
        break;
    case DEVICE_GELU:
        for (size_t i = 0; i < n; i++)
            dx[i] = dy[i] * gelu_slope(x[i]);
        break;
    case DEVICE_TANH:
        for (size_t i = 0; i < n; i++) {
            float t = fast_tanh(x[i]);
            dx[i] = dy[i] * (1.0f - t * t);
        }
        break;
    }
}

/* A NaN anywhere in the row must come out as a NaN loss, so the sum is taken over all columns. */
static void k_cross_entropy(float *dx, const float *x, const int32_t *label, int64_t rows, int64_t classes,
                            float scale, struct device_tally *tally)
{
    for (int64_t i = 0; i < rows; i++) {
        const float *row = x + i * classes;
        int64_t best = 0;
        for (int64_t j = 1; j < classes; j++)
            best = row[j] > row[best] ? j : best;
        float top = row[best], at_label = row[label[i]];
        float sum = 0.0f;
        for (int64_t j = 0; j < classes; j++)
            sum += fast_exp(row[j] - top);
        tally->loss += (double)(top - at_label) + log((double)sum);
        tally->correct += best == label[i];
        if (!dx)
            continue;
        float *out = dx + i * classes, inverse = scale / sum;
        for (int64_t j = 0; j < classes; j++)
            out[j] = fast_exp(row[j] - top) * inverse;
        out[label[i]] -= scale;
    }
}

static void k_mse(float *dx, const float *x, const float *y, int64_t rows, int64_t cols, float scale,
                  struct device_tally *tally)
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
        tally->loss += sum / (double)cols;
    }
}

static double k_sum_squares(const float *x, size_t n)
{
    double total = 0.0;
    size_t i = 0;
    while (i + LANES <= n) {
        float part[LANES] = {0};
        size_t end = n - i > 4096 ? i + 4096 : i + (n - i) / LANES * LANES;
        for (; i < end; i += LANES)
            for (int l = 0; l < LANES; l++)
                part[l] += x[i + (size_t)l] * x[i + (size_t)l];
        for (int l = 0; l < LANES; l++)
            total += (double)part[l];
    }
    for (; i < n; i++)
        total += (double)(x[i] * x[i]);
    return total;
}

static void k_sgd(const struct device_sgd *h, float *restrict p, const float *restrict g, float *restrict v,
                  size_t n)
{
    const float lr = h->lr, mu = h->momentum, decay = h->weight_decay, scale = h->scale;
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

static void k_adamw(const struct device_adamw *h, float *restrict p, const float *restrict g,
                    float *restrict m, float *restrict v, size_t n)
{
    const float b1 = h->beta1, b2 = h->beta2, c1 = 1.0f - h->beta1, c2 = 1.0f - h->beta2;
    const float keep = 1.0f - h->lr * h->weight_decay, step = h->lr / h->correction1;
    const float root = 1.0f / sqrtf(h->correction2), eps = h->eps, scale = h->scale;
    for (size_t i = 0; i < n; i++) {
        float d = g[i] * scale;
        m[i] = b1 * m[i] + c1 * d;
        v[i] = b2 * v[i] + c2 * d * d;
        p[i] = keep * p[i] - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

const struct cpu_kernels DDP_KERNELS = {
    .bias = k_bias,
    .bias_grad = k_bias_grad,
    .activate = k_activate,
    .activate_grad = k_activate_grad,
    .cross_entropy = k_cross_entropy,
    .mse = k_mse,
    .sum_squares = k_sum_squares,
    .sgd = k_sgd,
    .adamw = k_adamw,
};
