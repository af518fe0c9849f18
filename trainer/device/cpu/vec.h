#ifndef DDP_TRAINER_DEVICE_CPU_VEC_H
#define DDP_TRAINER_DEVICE_CPU_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

/* Vectors of sixteen floats for every instruction set: the compiler divides a vector into the registers that
 * exist. A sum in sixteen lanes that are folded in a fixed order has the same bits everywhere, as long as
 * nothing is contracted into fused multiply-adds. Included by files that are compiled once for each
 * instruction set. */

#define LANES 16
#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef uint16_t vh __attribute__((vector_size(32)));

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
/* Loads the first n lanes; the other lanes are zero. */
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
/* a > b ? a : b, and a < b ? a : b. If one of them is NaN, the result is b. Written with intrinsics, because
 * compilers make three instructions of the expression. */
#if defined(__AVX512F__)
VEC_INLINE vf vec_max(vf a, vf b)
{
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}
VEC_INLINE vf vec_min(vf a, vf b)
{
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
}
#elif defined(__AVX__)
#define VEC_HALVES(f, a, b)                                                                                  \
    __m256 x_[2], y_[2];                                                                                     \
    memcpy(x_, &(a), sizeof(x_));                                                                            \
    memcpy(y_, &(b), sizeof(y_));                                                                            \
    x_[0] = f(x_[0], y_[0]);                                                                                 \
    x_[1] = f(x_[1], y_[1]);                                                                                 \
    memcpy(&(a), x_, sizeof(x_));                                                                            \
    return a
VEC_INLINE vf vec_max(vf a, vf b)
{
    VEC_HALVES(_mm256_max_ps, a, b);
}
VEC_INLINE vf vec_min(vf a, vf b)
{
    VEC_HALVES(_mm256_min_ps, a, b);
}
#else
VEC_INLINE vf vec_max(vf a, vf b)
{
    return vec_select(a > b, a, b);
}
VEC_INLINE vf vec_min(vf a, vf b)
{
    return vec_select(a < b, a, b);
}
#endif
/* Returns a mask of the first n lanes. */
VEC_INLINE vi vec_first(int64_t n)
{
    return (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} < (int32_t)n;
}
VEC_INLINE vf vec_abs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}
/* Combines the halves of a vector: lanes i and i + 8, then lanes 4, 2 and 1 apart. */
#define VEC_FOLD(v, combine)                                                                                 \
    v = combine(v,                                                                                           \
                __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));  \
    v = combine(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7));           \
    v = combine(v, __builtin_shufflevector(v, v, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3));           \
    v = combine(v, __builtin_shufflevector(v, v, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))
VEC_INLINE vf vec_add(vf a, vf b)
{
    return a + b;
}
VEC_INLINE float vec_sum(vf v)
{
    VEC_FOLD(v, vec_add);
    return v[0];
}
VEC_INLINE float vec_top(vf v)
{
    VEC_FOLD(v, vec_max);
    return v[0];
}

/* e^x by Cody and Waite's reduction x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial for e^r with the
 * coefficients of the Taylor series up to r^7; within 2 ulp for normal results. Large and small x are
 * clamped, so that results are finite. A NaN passes the clamps, which return their second operand if one is
 * NaN. */
VEC_INLINE vf vec_exp(vf x)
{
    vf c = vec_min(vec_all(88.0f), vec_max(vec_all(-87.0f), x));
    /* Adding 1.5 * 2^23 leaves n in the low bits, rounded to nearest. */
    vf shifted = c * 1.44269504f + 12582912.0f;
    vf n = shifted - 12582912.0f;
    vf r = c - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = r * 1.98412698e-4f + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (vf)(((vu)shifted + 127u) << 23);
}

/* 1 / (1 + e^-x) */
VEC_INLINE vf vec_sigmoid(vf x)
{
    return 1.0f / (1.0f + vec_exp(-x));
}

/* tanh x = 1 - 2 / (e^2x + 1): absolute error below 2e-7. */
VEC_INLINE vf vec_tanh(vf x)
{
    return 1.0f - 2.0f / (vec_exp(2.0f * x) + 1.0f);
}

/* Rounds to bf16, the upper half of a float, to nearest even. A NaN stays a NaN. */
VEC_INLINE uint16_t vec_narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}
/* The same of sixteen values. With intrinsics, because gcc 12 takes the halves of the words out one by one. Where the instruction
 * for it exists, denormal numbers become zero: products of bf16 would read them as zero, too. */
#if defined(__AVX512BF16__)
VEC_INLINE vh vec_narrow_all(vf v)
{
    return (vh)_mm512_cvtneps_pbh((__m512)v);
}
#elif defined(__AVX512F__)
VEC_INLINE vh vec_narrow_all(vf v)
{
    const __m512i bits = (__m512i)v, half = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(half, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    const __m512i all = _mm512_mask_or_epi32(rounded, nan, half, _mm512_set1_epi32(0x40));
    return (vh)_mm512_cvtepi32_epi16(all);
}
#else
VEC_INLINE vh vec_narrow_all(vf v)
{
    vu bits = (vu)v, nan = (vu)(v != v);
    bits += (0x7fffu + ((bits >> 16) & 1u)) & ~nan;
    bits |= nan & 0x400000u;
    return __builtin_convertvector(bits >> 16, vh);
}
#endif
VEC_INLINE vf vec_load_bf16(const uint16_t *p)
{
    vh half;
    memcpy(&half, p, sizeof(half));
    return (vf)(__builtin_convertvector(half, vu) << 16);
}
VEC_INLINE void vec_store_bf16(uint16_t *p, vf v, int64_t n)
{
    vh half = vec_narrow_all(v);
    if (n == LANES) {
        memcpy(p, &half, sizeof(half));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        p[i] = half[i];
}

#endif
