#ifndef DDP_TESTS_GPU_BF16_H
#define DDP_TESTS_GPU_BF16_H

#include <stdint.h>
#include <string.h>

/* bf16 as tests of GPUs compute it: rounded to nearest, ties to even. Not for NaN. */

static inline uint16_t bf16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float float_from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof(y));
    return y;
}

#endif
