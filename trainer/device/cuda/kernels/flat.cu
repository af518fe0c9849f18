/* Operations on each element of flat arrays. A thread takes 16 bytes of each array (narrow and widen: 16 bytes of the bf16), and
 * each array is read or written once. */
#include "trainer/device/cuda/kernels/activation.cuh"
#include "trainer/device/cuda/kernels/kernels.h"
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/ranges.cuh"
#include "trainer/device/cuda/kernels/vector.cuh"

enum { THREADS = 256 };

/* ---- functions of one element, or of two */

template <enum device_activation KIND> struct value_of {
    __device__ float operator()(float x) const
    {
        return activation_value<KIND>(x);
    }
};
template <enum device_activation KIND> struct slope_times {
    __device__ float operator()(float dy, float x) const
    {
        float value;
        return dy * activation_slope<KIND>(x, &value);
    }
};
struct product_with {
    float by;
    __device__ float operator()(float x) const
    {
        return x * by;
    }
};
struct sum_of {
    __device__ float operator()(float x, float y) const
    {
        return x + y;
    }
};
struct identity {
    __device__ float operator()(float x) const
    {
        return x;
    }
};

/* ---- to = f(x) and to = f(x, y); `to` may be x or y */

template <int VEC, class T, class X, class F>
static __global__ void map_kernel(T *to, const X *x, int64_t n, F f)
{
    int64_t i = thread_index() * VEC;
    if (i + VEC <= n) {
        floats<VEC> v = load<VEC>(x + i);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            v.at[j] = f(v.at[j]);
        store<VEC>(to + i, v);
    } else {
        for (; i < n; i++)
            narrowed(to + i, f(widened(x[i])));
    }
}

template <int VEC, class F>
static __global__ void map2_kernel(float *to, const float *x, const float *y, int64_t n, F f)
{
    int64_t i = thread_index() * VEC;
    if (i + VEC <= n) {
        floats<VEC> a = load<VEC>(x + i), b = load<VEC>(y + i);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            a.at[j] = f(a.at[j], b.at[j]);
        store<VEC>(to + i, a);
    } else {
        for (; i < n; i++)
            to[i] = f(x[i], y[i]);
    }
}

template <int VEC, class T, class X, class F>
static cudaError_t flat_map_one(cudaStream_t stream, T *to, const X *x, size_t n, F f)
{
    if (n == 0)
        return cudaSuccess;
    if (aligned(to) && aligned(x))
        LAUNCH((map_kernel<VEC, T, X, F>), blocks_of(n, THREADS * VEC), THREADS, 0, stream, to, x, (int64_t)n,
               f);
    else
        LAUNCH((map_kernel<1, T, X, F>), blocks_of(n, THREADS), THREADS, 0, stream, to, x, (int64_t)n, f);
    return cudaGetLastError();
}

template <class F>
static cudaError_t flat_map_two(cudaStream_t stream, float *to, const float *x, const float *y, size_t n, F f)
{
    if (n == 0)
        return cudaSuccess;
    if (aligned(to) && aligned(x) && aligned(y))
        LAUNCH((map2_kernel<4, F>), blocks_of(n, THREADS * 4), THREADS, 0, stream, to, x, y, (int64_t)n, f);
    else
        LAUNCH((map2_kernel<1, F>), blocks_of(n, THREADS), THREADS, 0, stream, to, x, y, (int64_t)n, f);
    return cudaGetLastError();
}

/* ---- the operations */

cudaError_t cuda_narrow(cudaStream_t stream, void *bf16, const float *x, size_t n)
{
    return flat_map_one<8>(stream, static_cast<uint16_t *>(bf16), x, n, identity());
}

cudaError_t cuda_widen(cudaStream_t stream, float *y, const void *bf16, size_t n)
{
    return flat_map_one<8>(stream, y, static_cast<const uint16_t *>(bf16), n, identity());
}

template <enum device_activation KIND>
static cudaError_t run_activate(cudaStream_t stream, float *y, const float *x, size_t n)
{
    return flat_map_one<4>(stream, y, x, n, value_of<KIND>());
}

cudaError_t cuda_activate(cudaStream_t stream, enum device_activation kind, float *y, const float *x,
                          size_t n)
{
    return ACTIVATION_OF(kind, run_activate, stream, y, x, n);
}

template <enum device_activation KIND>
static cudaError_t run_activate_grad(cudaStream_t stream, float *dx, const float *dy, const float *x,
                                     size_t n)
{
    return flat_map_two(stream, dx, dy, x, n, slope_times<KIND>());
}

cudaError_t cuda_activate_grad(cudaStream_t stream, enum device_activation kind, float *dx, const float *dy,
                               const float *x, size_t n)
{
    return ACTIVATION_OF(kind, run_activate_grad, stream, dx, dy, x, n);
}

cudaError_t cuda_scale(cudaStream_t stream, float *x, size_t n, float by)
{
    struct product_with f;
    f.by = by;
    return flat_map_one<4>(stream, x, x, n, f);
}

cudaError_t cuda_add(cudaStream_t stream, float *y, const float *x, size_t n)
{
    return flat_map_two(stream, y, y, x, n, sum_of());
}

/* ---- zero in ranges */

template <int VEC>
static __global__ void zero_ranges_kernel(float *x, const struct device_range *ranges, int count)
{
    const struct device_range r = range_of_block(ranges, count);
    const int64_t n = (int64_t)r.count, from = range_start(r);
    floats<VEC> zero;
    clear(&zero);
    x += r.offset;
#pragma unroll
    for (int k = 0; k < DEVICE_RANGE_BLOCK; k += THREADS * VEC) {
        int64_t i = from + k + (int64_t)threadIdx.x * VEC;
        if (i + VEC <= n)
            store<VEC>(x + i, zero);
        else
            for (; i < n; i++)
                x[i] = 0.0f;
    }
}

cudaError_t cuda_zero_ranges(cudaStream_t stream, const struct device_ranges *ranges, float *x)
{
    if (ranges->count == 0)
        return cudaSuccess;
    if (ranges->aligned && aligned(x))
        LAUNCH(zero_ranges_kernel<4>, (unsigned)ranges->blocks, THREADS, 0, stream, x, ranges->items,
               (int)ranges->count);
    else
        LAUNCH(zero_ranges_kernel<1>, (unsigned)ranges->blocks, THREADS, 0, stream, x, ranges->items,
               (int)ranges->count);
    return cudaGetLastError();
}
