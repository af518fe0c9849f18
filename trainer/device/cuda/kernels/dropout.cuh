#ifndef DDP_TRAINER_DEVICE_CUDA_DROPOUT_CUH
#define DDP_TRAINER_DEVICE_CUDA_DROPOUT_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "trainer/device/cuda/kernels/vector.cuh"
#include "trainer/device/device.h"

/* Dropout masks, the same bit for bit as on the CPU: see struct device_dropout. */

struct dropout_draw {
    bool on;
    uint32_t least; /* an element whose word is below it is dropped */
    float kept;     /* 1 / (1 - p) */
    uint64_t key;
    const int64_t *sample;
};

static inline struct dropout_draw dropout_draw_of(const struct device_dropout *h)
{
    struct dropout_draw d;
    double limit = (double)h->p * 4294967296.0;
    d.on = h->p > 0.0f;
    d.least = limit < 4294967295.0 ? (uint32_t)limit : 4294967295u;
    d.kept = 1.0f / (1.0f - h->p);
    d.key = h->key;
    d.sample = h->sample;
    return d;
}

/* Philox4x32-7 (Salmon et al., SC 2011) of the counter (first, line, sample): the words of elements i, i + 16, i + 32
 * and i + 48 of a chunk of 64, where first is chunk * 16 + i. */
static __device__ __forceinline__ void dropout_words(uint32_t out[4], const struct dropout_draw *h,
                                                     int64_t row, int64_t line, uint32_t first)
{
    uint64_t sample = (uint64_t)h->sample[row];
    uint32_t a = first, b = (uint32_t)line, c = (uint32_t)sample, d = (uint32_t)(sample >> 32);
    uint32_t k0 = (uint32_t)h->key, k1 = (uint32_t)(h->key >> 32);
#pragma unroll
    for (int round = 0; round < 7; round++) {
        uint64_t p = (uint64_t)a * 0xd2511f53u, q = (uint64_t)c * 0xcd9e8d57u;
        a = (uint32_t)(q >> 32) ^ b ^ k0;
        c = (uint32_t)(p >> 32) ^ d ^ k1;
        b = (uint32_t)q;
        d = (uint32_t)p;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* The factor of one element: 0 or 1 / (1 - p). */
static __device__ __forceinline__ float dropout_factor(const struct dropout_draw *h, int64_t row,
                                                       int64_t line, int64_t element)
{
    uint32_t words[4];
    dropout_words(words, h, row, line, (uint32_t)(element / 64 * 16 + element % 16));
    int64_t w = element / 16 % 4;
    uint32_t word = w == 0 ? words[0] : w == 1 ? words[1] : w == 2 ? words[2] : words[3];
    return word < h->least ? 0.0f : h->kept;
}

/* v *= the factors of elements at, at + 1, ... of a line. All lanes of a warp call together. Their elements are
 * neighbours and, if N is 4, begin at a multiple of 64. */
template <int N>
static __device__ __forceinline__ void dropout_drop(floats<N> *v, const struct dropout_draw *h, int64_t row,
                                                    int64_t line, int64_t at)
{
    static_assert(N == 1, "N is 1, or 4 by the specialization below");
    v->at[0] *= dropout_factor(h, row, line, at);
}

/* Sixteen lanes hold a chunk of 64 elements. A lane draws the four words of one counter, which belong to elements of
 * four different lanes, so the lanes exchange by ballot which elements are kept. */
template <>
__device__ __forceinline__ void dropout_drop<4>(floats<4> *v, const struct dropout_draw *h, int64_t row,
                                                int64_t line, int64_t at)
{
    uint32_t words[4], kept[4];
    int lane = (int)(threadIdx.x % 32), w = lane % 16 / 4;
    dropout_words(words, h, row, line, (uint32_t)(at / 64 * 16 + lane % 16));
#pragma unroll
    for (int i = 0; i < 4; i++)
        kept[i] = __ballot_sync(0xffffffffu, words[i] >= h->least);
    uint32_t mine = w == 0 ? kept[0] : w == 1 ? kept[1] : w == 2 ? kept[2] : kept[3];
    mine >>= lane / 16 * 16 + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < 4; j++)
        v->at[j] *= mine >> j & 1u ? h->kept : 0.0f;
}

#endif
