#ifndef DDP_TRAINER_DEVICE_CPU_ACTIVATION_H
#define DDP_TRAINER_DEVICE_CPU_ACTIVATION_H

#include "trainer/device/cpu/vec.h"
#include "trainer/device/device.h"

/* Activations and their slopes, sixteen at a time. */

/* tanh of GELU's inner polynomial. */
#define GELU_A 0.7978845608f /* sqrt(2 / pi) */
#define GELU_B 0.044715f

VEC_INLINE vf activation_gelu_inner(vf x)
{
    return vec_tanh(GELU_A * (x + GELU_B * x * x * x));
}

/* Phi(x), the normal distribution, by formula 7.1.26 of Abramowitz and Stegun for erf, which is good
 * to 1.5e-7 absolute; *density is exp(-x^2 / 2) / sqrt(2 pi). */
VEC_INLINE vf activation_normal(vf x, vf *density)
{
    vf a = vec_abs(x) * 0.70710678f, e = vec_exp(-a * a);
    vf t = 1.0f / (1.0f + 0.3275911f * a);
    vf p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    vf half_tail = 0.5f * p * t * e;
    *density = 0.39894228f * e;
    return vec_select(x > 0.0f, 1.0f - half_tail, half_tail);
}

VEC_INLINE vf activation_value(enum device_activation kind, vf x)
{
    vf density;
    switch (kind) {
    case DEVICE_RELU:
        return vec_select(x < 0.0f, (vf){0}, x);
    case DEVICE_TANH:
        return vec_tanh(x);
    case DEVICE_GELU:
        return x * activation_normal(x, &density);
    case DEVICE_GELU_TANH:
        break;
    }
    return 0.5f * x * (1.0f + activation_gelu_inner(x));
}

/* The slope at x; *value is activation_value, to the bit. */
VEC_INLINE vf activation_slope(enum device_activation kind, vf x, vf *value)
{
    vf t, density;
    switch (kind) {
    case DEVICE_RELU:
        *value = vec_select(x < 0.0f, (vf){0}, x);
        return vec_select(x > 0.0f, vec_all(1.0f), (vf){0});
    case DEVICE_TANH:
        *value = t = vec_tanh(x);
        return 1.0f - t * t;
    case DEVICE_GELU:
        t = activation_normal(x, &density);
        *value = x * t;
        return t + x * density;
    case DEVICE_GELU_TANH:
        break;
    }
    t = activation_gelu_inner(x);
    *value = 0.5f * x * (1.0f + t);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * GELU_A * (1.0f + 3.0f * GELU_B * x * x);
}

/* Calls f(kind, ...) with the kind as a constant, so that a loop holds one formula. */
#define ACTIVATION_EACH(kind, f, ...)                                                                        \
    do {                                                                                                     \
        switch (kind) {                                                                                      \
        case DEVICE_RELU:                                                                                    \
            f(DEVICE_RELU, __VA_ARGS__);                                                                     \
            break;                                                                                           \
        case DEVICE_GELU:                                                                                    \
            f(DEVICE_GELU, __VA_ARGS__);                                                                     \
            break;                                                                                           \
        case DEVICE_TANH:                                                                                    \
            f(DEVICE_TANH, __VA_ARGS__);                                                                     \
            break;                                                                                           \
        case DEVICE_GELU_TANH:                                                                               \
            f(DEVICE_GELU_TANH, __VA_ARGS__);                                                                \
            break;                                                                                           \
        }                                                                                                    \
    } while (0)

#endif
