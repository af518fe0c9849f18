#ifndef DDP_TRAINER_DEVICE_CPU_VEC_H
#define DDP_TRAINER_DEVICE_CPU_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Sixteen floats at a time, whatever the instruction set: the compiler cuts a vector into registers it has.
 * So a sum in sixteen lanes that are folded in a fixed order has the same bits everywhere, as long as nothing
 * is contracted into fused multiply-adds. Included by files that are compiled once per instruction set. */

#define LANES 16
#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));

VEC_INLINE vf vec_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof(v));
    return v;
}
VEC_INLINE void vec_store(float *p, vf v)
{
    memcpy(p, &v, sizeof(v));
}
/* The first n lanes; zeros behind them. */
VEC_INLINE vf vec_load_part(const float *p, int64_t n)
{
    vf v = {0};
    for (int64_t i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}
VEC_INLINE void vec_store_part(float *p, vf v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = v[i];
}
VEC_INLINE vf vec_all(float x)
{
    return x - (vf){0};
}
VEC_INLINE vf vec_select(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
VEC_INLINE vf vec_max(vf a, vf b)
{
    return vec_select(a > b, a, b);
}
VEC_INLINE vf vec_abs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}
VEC_INLINE float vec_sum(vf v)
{
    float a[LANES];
    memcpy(a, &v, sizeof(a));
    for (int step = LANES / 2; step; step /= 2)
        for (int i = 0; i < step; i++)
            a[i] += a[i + step];
    return a[0];
}
VEC_INLINE float vec_top(vf v)
{
    float a[LANES];
    memcpy(a, &v, sizeof(a));
    for (int step = LANES / 2; step; step /= 2)
        for (int i = 0; i < step; i++)
            a[i] = a[i] > a[i + step] ? a[i] : a[i + step];
    return a[0];
}

/* e^x by Cody and Waite's reduction x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial for e^r with the
 * coefficients of the Taylor series to r^7: within 2 ulp for normal results. Clamped to finite results, so a
 * NaN is carried by the select at the end (and goes to the clamp: its conversion would be undefined). */
VEC_INLINE vf vec_exp(vf x)
{
    vf c = vec_max(x, vec_all(-87.0f));
    c = vec_select(c > 88.0f, vec_all(88.0f), c);
    vf n = c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer in the low bits */
    n = n - 12582912.0f;
    vf r = c - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = r * 1.98412698e-4f + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    vi power = (__builtin_convertvector(n, vi) + 127) << 23;
    return vec_select(x == x, p * (vf)power, x);
}

/* tanh x = 1 - 2 / (e^2x + 1): absolute error below 2e-7. */
VEC_INLINE vf vec_tanh(vf x)
{
    return 1.0f - 2.0f / (vec_exp(2.0f * x) + 1.0f);
}

/* bf16 is the upper half of a float, to nearest even; a NaN stays one. */
VEC_INLINE uint16_t vec_narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}
VEC_INLINE void vec_store_bf16(uint16_t *p, vf v, int64_t n)
{
    float a[LANES];
    memcpy(a, &v, sizeof(a));
    for (int64_t i = 0; i < n; i++)
        p[i] = vec_narrow(a[i]);
}

#endif
