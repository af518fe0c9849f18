#ifndef DDP_TRAINER_DEVICE_CUDA_POWER_CUH
#define DDP_TRAINER_DEVICE_CUDA_POWER_CUH

#include <cuda_runtime.h>
#include <math.h>

/* Fast exponentials, for kernels whose time they dominate: one instruction, with a relative error of at most 2^-22.
 * Results below the smallest normal float are 0. */

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

/* 2^x */
static __device__ __forceinline__ float power_of_two(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* e^(x - top). The difference comes first, because it is exact for x near top, where the result is large. */
static __device__ __forceinline__ float power_below(float x, float top)
{
    return power_of_two((x - top) * LOG2E);
}

#endif
