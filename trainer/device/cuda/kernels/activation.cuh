#ifndef DDP_TRAINER_DEVICE_CUDA_ACTIVATION_CUH
#define DDP_TRAINER_DEVICE_CUDA_ACTIVATION_CUH

#include <cuda_runtime.h>
#include <math.h>

#include "trainer/device/cuda/kernels/power.cuh"
#include "trainer/device/device.h"

/* Activations and their slopes. The kind is a template argument, so that kernels have no branch for it. */

/* The tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415) is 0.5 x (1 + tanh u) with u = a (x + b x^3), and
 * equal to x sigmoid(2 u). */
#define GELU_2A 1.5957691216f /* 2 sqrt(2 / pi) */
#define GELU_B 0.044715f

/* sigmoid(2 u) */
static __device__ __forceinline__ float gelu_weight(float x)
{
    return __fdividef(1.0f, 1.0f + power_of_two(-GELU_2A * LOG2E * x * (1.0f + GELU_B * x * x)));
}

/* The cumulative distribution of the standard normal. */
static __device__ __forceinline__ float normal_distribution(float x)
{
    return 0.5f * erfcf(-0.70710678f * x);
}

template <enum device_activation KIND> static __device__ __forceinline__ float activation_value(float x)
{
    if (KIND == DEVICE_RELU)
        return x < 0.0f ? 0.0f : x;
    if (KIND == DEVICE_TANH)
        return tanhf(x);
    if (KIND == DEVICE_GELU)
        return x * normal_distribution(x);
    return x * gelu_weight(x);
}

/* The slope at x. *value becomes activation_value, which shares most of the work. */
template <enum device_activation KIND>
static __device__ __forceinline__ float activation_slope(float x, float *value)
{
    if (KIND == DEVICE_RELU) {
        *value = x < 0.0f ? 0.0f : x;
        return x > 0.0f ? 1.0f : 0.0f;
    }
    if (KIND == DEVICE_TANH) {
        float t = tanhf(x);
        *value = t;
        return 1.0f - t * t;
    }
    if (KIND == DEVICE_GELU) {
        float share = normal_distribution(x);
        *value = x * share;
        /* (x P(x))' = P(x) + x p(x), with the density p(x) = e^(-x^2 / 2) / sqrt(2 pi). */
        return share + x * 0.39894228f * expf(-0.5f * x * x);
    }
    float share = gelu_weight(x);
    *value = x * share;
    /* (x s)' = s + x s (1 - s) (2 u)', with s = sigmoid(2 u). */
    return share + *value * (1.0f - share) * (GELU_2A + 3.0f * GELU_2A * GELU_B * x * x);
}

/* Calls f<kind>(...), a template of launchers. */
#define ACTIVATION_OF(kind, f, ...)                                                                          \
    ((kind) == DEVICE_RELU   ? f<DEVICE_RELU>(__VA_ARGS__)                                                   \
     : (kind) == DEVICE_TANH ? f<DEVICE_TANH>(__VA_ARGS__)                                                   \
     : (kind) == DEVICE_GELU ? f<DEVICE_GELU>(__VA_ARGS__)                                                   \
                             : f<DEVICE_GELU_TANH>(__VA_ARGS__))

#endif
