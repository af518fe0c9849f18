#ifndef DDP_TRAINER_DEVICE_CUDA_POWER_CUH
#define DDP_TRAINER_DEVICE_CUDA_POWER_CUH

#include <cuda_runtime.h>
#include <math.h>

/* Powers where they are what takes the time: one instruction, 2^-22 of it off at most, and 0 below the
 * smallest normal float. */

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

/* e^(x - top): the difference first, so that it is exact where it matters */
static __device__ __forceinline__ float power_below(float x, float top)
{
    return power_of_two((x - top) * LOG2E);
}

#endif
