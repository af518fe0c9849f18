#ifndef DDP_TRAINER_DEVICE_CUDA_BF16_CUH
#define DDP_TRAINER_DEVICE_CUDA_BF16_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* bf16 is the upper half of a float. Rounding is to nearest even; a NaN stays a NaN. */

static __device__ __forceinline__ float bf16_float(uint16_t x)
{
    return __uint_as_float((uint32_t)x << 16);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

static __device__ __forceinline__ uint16_t bf16_of(float x)
{
    uint16_t y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

/* Two bf16 in one word, the first in the lower half. */
static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

#else

static __device__ __forceinline__ uint16_t bf16_of(float x)
{
    uint32_t bits = __float_as_uint(x);
    /* Rounding could carry a NaN into infinity, so one bit of its fraction is set instead. */
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    return (uint32_t)bf16_of(low) | (uint32_t)bf16_of(high) << 16;
}

#endif

/* Eight bf16, read and written at once; at a 16-byte boundary. */
struct alignas(16) bf16x8 {
    uint32_t pair[4];
};

#endif
