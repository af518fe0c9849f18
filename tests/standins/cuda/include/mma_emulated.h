#ifndef DDP_TESTS_STANDINS_CUDA_INCLUDE_MMA_EMULATED_H
#define DDP_TESTS_STANDINS_CUDA_INCLUDE_MMA_EMULATED_H

#include "emulated_kernel.h"

/* Replaces the helpers of trainer/device/cuda/kernels/mma.cuh when kernels are compiled for the CPU. Each lane shows
 * its registers to the other lanes and computes its own part of the result. Products of two bf16 numbers are exact in
 * float; they are added in the order of k. */

static inline float mma_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}
static inline float mma_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

static inline void mma_16816(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    struct {
        uint32_t a[4], b[2];
    } mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const unsigned char *all =
        emulated_exchange(EMULATED_MMA, 0xffffffffu, &mine, sizeof mine, __FILE__, __LINE__);
    int lane = emulated_lane(), group = lane / 4, pair = lane % 4 * 2;
    for (int k = 0; k < 16; k += 2) {
        /* In each group of four lanes, lane k % 8 / 2 holds columns k and k + 1 of a, and rows k and k + 1 of b. */
        const uint32_t *left = (const uint32_t *)(all + 32 * (group * 4 + k % 8 / 2));
        for (int j = 0; j < 2; j++) {
            const uint32_t *right = (const uint32_t *)(all + 32 * ((pair + j) * 4 + k % 8 / 2)) + 4;
            for (int half = 0; half < 2; half++) {
                float *to = &c[2 * half + j];
                uint32_t x = left[k / 8 * 2 + half], y = right[k / 8];
                *to += mma_low(x) * mma_low(y);
                *to += mma_high(x) * mma_high(y);
            }
        }
    }
}

static inline const uint16_t *const *mma_rows(const uint16_t *row, int line)
{
    if ((uintptr_t)row % 16)
        emulated_trap("a matrix's row at %p is not aligned to 16 bytes", (const void *)row);
    return (const uint16_t *const *)emulated_exchange(EMULATED_MMA, 0xffffffffu, &row, sizeof row, __FILE__,
                                                      line);
}

static inline void mma_load(uint32_t out[4], const uint16_t *row)
{
    const uint16_t *const *rows = mma_rows(row, __LINE__);
    int lane = emulated_lane();
    for (int i = 0; i < 4; i++)
        memcpy(&out[i], rows[4 * (8 * i + lane / 4)] + lane % 4 * 2, 4);
}

static inline void mma_load_transposed(uint32_t out[4], const uint16_t *row)
{
    const uint16_t *const *rows = mma_rows(row, __LINE__);
    int lane = emulated_lane(), pair = lane % 4 * 2;
    for (int i = 0; i < 4; i++)
        out[i] = rows[4 * (8 * i + pair)][lane / 4] | (uint32_t)rows[4 * (8 * i + pair + 1)][lane / 4] << 16;
}

#endif
