#ifndef DDP_TESTS_STANDINS_CUDA_INCLUDE_EMULATED_KERNEL_H
#define DDP_TESTS_STANDINS_CUDA_INCLUDE_EMULATED_KERNEL_H

#include <algorithm>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "emulated_block.h"

/* Lets kernels be compiled as ordinary C++: each thread of a block is a fiber, and blocks run one after another
 * (../block.c). Shared memory is the thread-local storage of the library that contains the kernels; therefore that
 * library must have no other thread-local variables. */

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static thread_local

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

#define threadIdx (emulated_here->thread)
#define blockIdx (emulated_here->block)
#define blockDim (emulated_here->threads)
#define gridDim (emulated_here->blocks)
#define warpSize 32

#define __syncthreads() emulated_barrier(__FILE__, __LINE__)
#define __syncwarp(...) emulated_syncwarp(__FILE__, __LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) emulated_shuffle(0, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulated_shuffle(1, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulated_shuffle(2, __FILE__, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulated_shuffle(3, __FILE__, __LINE__, __VA_ARGS__)
#define __ballot_sync(mask, x) emulated_ballot(mask, x, __FILE__, __LINE__)
#define __any_sync(mask, x) (emulated_ballot(mask, x, __FILE__, __LINE__) != 0)
#define __all_sync(mask, x) (emulated_ballot(mask, x, __FILE__, __LINE__) == (mask))

static inline void emulated_syncwarp(const char *file, int line, unsigned mask = 0xffffffffu)
{
    emulated_exchange(EMULATED_SYNC, mask, nullptr, 0, file, line);
}

template <class T>
static inline T emulated_shuffle(int how, const char *file, int line, unsigned mask, T x, int by,
                                 int width = 32)
{
    static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= 8, "a number");
    const unsigned char *all = emulated_exchange(EMULATED_SHUFFLE, mask, &x, sizeof x, file, line);
    int lane = emulated_lane(), first = lane / width * width, from = lane;
    if (how == 0)
        from = first + (by & (width - 1));
    else if (how == 1)
        from = lane ^ by;
    else
        from = how == 2 ? lane - by : lane + by;
    if (from < first || from >= first + width)
        from = lane;
    if (!(mask >> from & 1))
        emulated_trap("%s:%d: lane %d reads of lane %d, which is not in the mask %08x", file, line, lane,
                      from, mask);
    memcpy(&x, all + 32 * from, sizeof x);
    return x;
}

static inline unsigned emulated_ballot(unsigned mask, int x, const char *file, int line)
{
    unsigned char mine = x != 0;
    const unsigned char *all = emulated_exchange(EMULATED_VOTE, mask, &mine, 1, file, line);
    unsigned votes = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && all[32 * i])
            votes |= 1u << i;
    return votes;
}

/* Launches a kernel with a copy of its arguments. As in CUDA, arguments must be trivially copyable. */
template <class... P, class... A>
static inline void emulated_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                                   size_t shared, cudaStream_t stream, A &&...a)
{
    struct work {
        void (*kernel)(P...);
        std::tuple<P...> arguments;
    };
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as parameters");
    static_assert((std::is_trivially_copyable<P>::value && ...), "arguments are plain data");
    struct work w = {kernel, std::tuple<P...>(static_cast<P>(a)...)};
    const unsigned blocks[3] = {grid.x, grid.y, grid.z}, threads[3] = {block.x, block.y, block.z};
    emulated_start(
        name, reinterpret_cast<const void *>(kernel), blocks, threads, shared, stream,
        [](void *p) {
            auto *of = static_cast<struct work *>(p);
            std::apply(of->kernel, of->arguments);
        },
        &w, sizeof w);
}

/* ---- CUDA's names for arithmetic */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T x)
{
    *p = x;
}
template <class T> static inline void __stcg(T *p, T x)
{
    *p = x;
}
/* macros, because the C library uses these names internally */
#define __expf expf
#define __logf logf
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __log2f log2f
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline unsigned __float_as_uint(float x)
{
    unsigned u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline int __float_as_int(float x)
{
    return (int)__float_as_uint(x);
}
static inline float __uint_as_float(unsigned u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline float __int_as_float(int i)
{
    return __uint_as_float((unsigned)i);
}
static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

/* Only one thread runs at a time, so plain reads and writes are atomic here. */
template <class T> static inline T atomicAdd(T *p, T x)
{
    T old = *p;
    *p = old + x;
    return old;
}
template <class T> static inline T atomicMax(T *p, T x)
{
    T old = *p;
    *p = old > x ? old : x;
    return old;
}
template <class T> static inline T atomicMin(T *p, T x)
{
    T old = *p;
    *p = old < x ? old : x;
    return old;
}
template <class T> static inline T atomicExch(T *p, T x)
{
    T old = *p;
    *p = x;
    return old;
}
template <class T> static inline T atomicCAS(T *p, T is, T x)
{
    T old = *p;
    if (old == is)
        *p = x;
    return old;
}
static inline unsigned atomicInc(unsigned *p, unsigned last)
{
    unsigned old = *p;
    *p = old >= last ? 0 : old + 1;
    return old;
}
static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}

using std::max;
using std::min;

#endif
