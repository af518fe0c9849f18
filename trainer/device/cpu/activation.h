#ifndef DDP_TRAINER_DEVICE_CPU_ACTIVATION_H
#define DDP_TRAINER_DEVICE_CPU_ACTIVATION_H

#include "trainer/device/cpu/vec.h"
#include "trainer/device/device.h"

/* Activations and their derivatives, sixteen elements at a time. */

/* The tanh form of GELU, 0.5 x (1 + tanh u) with u = a (x + b x^3), equals x sigmoid(2 u). */
#define GELU_2A 1.5957691216f /* 2 sqrt(2 / pi) */
#define GELU_B 0.044715f

VEC_INLINE vf activation_gelu_weight(vf x, vf square)
{
    return vec_sigmoid(GELU_2A * x * (1.0f + GELU_B * square));
}

/* Phi(x), the cumulative normal distribution, by formula 7.1.26 of Abramowitz and Stegun for erf, with an
 * absolute error below 1.5e-7. *density = exp(-x^2 / 2) / sqrt(2 pi). */
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
    return x * activation_gelu_weight(x, x * x);
}

/* Returns the derivative at x. *value has the same bits as activation_value. */
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
    vf square = x * x;
    t = activation_gelu_weight(x, square);
    *value = x * t;
    return t + *value * (1.0f - t) * (GELU_2A + 3.0f * GELU_2A * GELU_B * square);
}

/* Calls f(kind, ...) with kind as a constant, so that a loop in f contains one formula only. */
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
