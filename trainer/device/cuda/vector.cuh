#ifndef DDP_TRAINER_DEVICE_CUDA_VECTOR_CUH
#define DDP_TRAINER_DEVICE_CUDA_VECTOR_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "trainer/device/cuda/bf16.cuh"

/* Numbers in memory, float or bf16 (uint16_t), as floats in registers, several at a time. A kernel's VEC is
 * how many; 1 where rows do not begin at 16-byte boundaries. Then, sums over a block. */

template <class T, int N> struct alignas(sizeof(T) * N) packed {
    T at[N];
};
template <int N> struct floats {
    float at[N];
};

/* At most 16 bytes at once. */
template <class T, int N> struct access {
    static constexpr int at_once = sizeof(T) * N > 16 ? 16 / (int)sizeof(T) : N;
};

static __device__ __forceinline__ float widened(float x)
{
    return x;
}
static __device__ __forceinline__ float widened(uint16_t x)
{
    return bf16_float(x);
}
static __device__ __forceinline__ void narrowed(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void narrowed(uint16_t *to, float x)
{
    *to = bf16_of(x);
}

template <int N, class T> static __device__ __forceinline__ floats<N> load(const T *from)
{
    constexpr int M = access<T, N>::at_once;
    floats<N> v;
#pragma unroll
    for (int i = 0; i < N; i += M) {
        packed<T, M> raw = *reinterpret_cast<const packed<T, M> *>(from + i);
#pragma unroll
        for (int j = 0; j < M; j++)
            v.at[i + j] = widened(raw.at[j]);
    }
    return v;
}

template <int N, class T> static __device__ __forceinline__ void store(T *to, const floats<N> &v)
{
    constexpr int M = access<T, N>::at_once;
#pragma unroll
    for (int i = 0; i < N; i += M) {
        packed<T, M> raw;
#pragma unroll
        for (int j = 0; j < M; j++)
            narrowed(&raw.at[j], v.at[i + j]);
        *reinterpret_cast<packed<T, M> *>(to + i) = raw;
    }
}

template <int N> static __device__ __forceinline__ void clear(floats<N> *v)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        v->at[i] = 0.0f;
}

/* A block's place in a one-dimensional grid of threads. */
static __device__ __forceinline__ int64_t thread_index(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* ---- sums over a block of whole warps: the same in all threads. room: 32 of them, free again after the next
 * __syncthreads. */

template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

template <class T> static __device__ __forceinline__ T block_sum(T x, T *room)
{
    int warps = (int)(blockDim.x / 32);
    x = warp_sum(x);
    if (warps == 1)
        return x;
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    int lane = (int)(threadIdx.x % 32);
    return warp_sum(lane < warps ? room[lane] : (T)0);
}

/* ---- on the host */

static inline bool aligned(const void *p) /* NULL is */
{
    return (uintptr_t)p % 16 == 0;
}
static inline unsigned blocks_of(size_t n, size_t each)
{
    return (unsigned)((n + each - 1) / each);
}

#endif
