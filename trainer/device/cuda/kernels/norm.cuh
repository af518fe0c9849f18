#ifndef DDP_TRAINER_DEVICE_CUDA_NORM_CUH
#define DDP_TRAINER_DEVICE_CUDA_NORM_CUH

#include "trainer/device/cuda/kernels/dropout.cuh"
#include "trainer/device/cuda/kernels/vector.cuh"

/* Shared by layer norm and its gradient. A block takes a row; each thread takes VEC neighbouring elements at PER
 * places of it, which stay in registers. Kernels for rows that are too long for that are called wide: they read the
 * row again, from the cache. */

enum { NORM_THREADS = 1024, NORM_WIDTH = 1 << 20 /* limit */ };

/* The first element of a thread's place i. */
template <int VEC> static __device__ __forceinline__ int place_of(int i)
{
    return (i * (int)blockDim.x + (int)threadIdx.x) * VEC;
}
/* The number of places, the same for all threads. */
template <int VEC> static __device__ __forceinline__ int places_of(int64_t width)
{
    return ((int)width + (int)blockDim.x * VEC - 1) / ((int)blockDim.x * VEC);
}

template <int VEC>
static __device__ __forceinline__ void norm_drop(floats<VEC> *v, const struct dropout_draw *draw,
                                                 const struct device_tokens *n, int64_t t, int at)
{
    if (draw->on)
        dropout_drop<VEC>(v, draw, t / n->context, t % n->context, at);
}

/* ---- on the host */

/* The threads for a row of `width` elements, if each takes `each` of them; whole warps. */
static unsigned threads_of(int64_t width, int64_t each)
{
    int64_t threads = (width + each - 1) / each;
    return (unsigned)((threads + 31) / 32 * 32);
}

#endif
