#ifndef DDP_TRAINER_DEVICE_CUDA_VECTOR_CUH
#define DDP_TRAINER_DEVICE_CUDA_VECTOR_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "trainer/device/cuda/kernels/bf16.cuh"

/* Loads and stores several numbers at a time: float or bf16 (uint16_t) in memory, floats in registers. VEC is the
 * number of elements that a kernel takes at once; it is 1 if rows do not begin at 16-byte boundaries. At the end: sums
 * over a block. */

template <int N> struct floats {
    float at[N];
};

/* The type that one load or store instruction moves. */
template <int BYTES> struct bits_of;
template <> struct bits_of<16> {
    typedef uint4 type;
};
template <> struct bits_of<8> {
    typedef uint2 type;
};
template <> struct bits_of<4> {
    typedef uint32_t type;
};
template <> struct bits_of<2> {
    typedef uint16_t type;
};

/* The number of elements that one instruction moves: 16 bytes at most. */
template <class T, int N> struct access {
    static constexpr int at_once = sizeof(T) * N > 16 ? 16 / (int)sizeof(T) : N;
};

/* A product and a sum that are each rounded by themselves, as on the CPU device. If the compiler were free to fuse them,
 * ranks with other GPUs or other builds would get different parameters. */
static __device__ __forceinline__ float mul_rounded(float x, float y)
{
    return __fmul_rn(x, y);
}
static __device__ __forceinline__ float add_rounded(float x, float y)
{
    return __fadd_rn(x, y);
}

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

static __device__ __forceinline__ uint32_t word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
static __device__ __forceinline__ uint32_t word_of(const uint2 &v, int i)
{
    return i == 0 ? v.x : v.y;
}
static __device__ __forceinline__ uint32_t word_of(uint32_t v, int)
{
    return v;
}
/* Stores words with one instruction, to global memory only. Written in assembly, because the compiler may split the
 * store of a struct into single words and does not always join them again. */
static __device__ __forceinline__ void put_words(uint4 *to, const uint32_t *w)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                 : "memory");
#else
    *to = make_uint4(w[0], w[1], w[2], w[3]);
#endif
}
static __device__ __forceinline__ void put_words(uint2 *to, const uint32_t *w)
{
#ifdef __CUDACC__
    asm volatile("st.global.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(w[0]), "r"(w[1])
                 : "memory");
#else
    *to = make_uint2(w[0], w[1]);
#endif
}
static __device__ __forceinline__ void put_words(uint32_t *to, const uint32_t *w)
{
    *to = w[0];
}

/* N elements as they are in memory. A thread that loads them goes on; it waits for them only where it widens them. */
template <class T, int N> struct raw {
    typedef typename bits_of<access<T, N>::at_once *(int)sizeof(T)>::type bits;
    bits part[N / access<T, N>::at_once];
};

template <class T, int N> static __device__ __forceinline__ void load_raw(raw<T, N> *to, const T *from)
{
    constexpr int M = access<T, N>::at_once;
#pragma unroll
    for (int i = 0; i < N; i += M)
        to->part[i / M] = *reinterpret_cast<const typename raw<T, N>::bits *>(from + i);
}

/* A word holds two bf16: the second in its upper half, which is a float already. */
template <class T, int N> static __device__ __forceinline__ floats<N> widen(const raw<T, N> &r)
{
    constexpr int M = access<T, N>::at_once;
    floats<N> v;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int j = i % M;
        uint32_t word = word_of(r.part[i / M], sizeof(T) == 4 ? j : j / 2);
        v.at[i] = __uint_as_float(sizeof(T) == 4 ? word : j % 2 ? word & 0xffff0000u : word << 16);
    }
    return v;
}

template <int M, class T> static __device__ __forceinline__ void store_at_once(T *to, const float *v)
{
    typedef typename bits_of<M *(int)sizeof(T)>::type bits;
    if constexpr (M == 1) {
        narrowed(to, v[0]);
    } else {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < M; j += 4 / (int)sizeof(T))
            words[j * (int)sizeof(T) / 4] =
                sizeof(T) == 4 ? __float_as_uint(v[j]) : bf16_pair(v[j], v[j + 1]);
        put_words(reinterpret_cast<bits *>(to), words);
    }
}

template <int N, class T> static __device__ __forceinline__ floats<N> load(const T *from)
{
    raw<T, N> r;
    load_raw<T, N>(&r, from);
    return widen<T, N>(r);
}

template <int N, class T> static __device__ __forceinline__ void store(T *to, const floats<N> &v)
{
    constexpr int M = access<T, N>::at_once;
#pragma unroll
    for (int i = 0; i < N; i += M)
        store_at_once<M>(to + i, &v.at[i]);
}

template <int N> static __device__ __forceinline__ void clear(floats<N> *v)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        v->at[i] = 0.0f;
}

template <class T, int N> static __device__ __forceinline__ void clear(raw<T, N> *r)
{
#pragma unroll
    for (int i = 0; i < N / access<T, N>::at_once; i++)
        r->part[i] = {};
}

/* The thread's index in a one-dimensional grid. */
static __device__ __forceinline__ int64_t thread_index(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* ---- sums over a warp, and over a block of whole warps
 *
 * All threads get the same result. room has 32 elements, and may be used again after the next __syncthreads. */

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

static inline bool aligned(const void *p) /* NULL counts as aligned */
{
    return (uintptr_t)p % 16 == 0;
}
static inline unsigned blocks_of(size_t n, size_t each)
{
    return (unsigned)((n + each - 1) / each);
}

#endif
