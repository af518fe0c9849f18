/* Residual and layer norm (Ba et al., arXiv 1607.06450): x = residual + dropout(delta + bias), y = gain (x - mean) /
 * sqrt(variance + EPSILON) + shift. Each array is read or written once. */
#include <math.h>

#include "trainer/device/cuda/kernels/kernels.h"
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/norm.cuh"

#define EPSILON 1e-5f

template <int VEC> static __device__ __forceinline__ float vector_sum(const floats<VEC> &v)
{
    float sum = v.at[0];
#pragma unroll
    for (int j = 1; j < VEC; j++)
        sum += v.at[j];
    return sum;
}

struct norm_work {
    struct device_norm h;
    struct dropout_draw draw;
};

/* Computes x at one place of row t and stores it, if there is a delta. Returns x, the input of the norm; zeros behind
 * the end of the row. */
template <class T, int VEC>
static __device__ __forceinline__ floats<VEC> norm_input(const struct norm_work *w, int64_t t, int at)
{
    const struct device_norm *h = &w->h;
    bool there = at < h->n.width;
    floats<VEC> x, v;
    clear(&x);
    clear(&v);
    if (there)
        x = load<VEC>(h->residual + t * h->n.width + at);
    if (!h->delta)
        return x;
    if (there) {
        floats<VEC> bias = load<VEC>(h->bias + at);
        v = load<VEC>(static_cast<const T *>(h->delta) + t * h->n.width + at);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            v.at[j] += bias.at[j];
    }
    norm_drop<VEC>(&v, &w->draw, &h->n, t, at); /* also behind the end: a warp draws its mask together */
    if (!there)
        return x;
#pragma unroll
    for (int j = 0; j < VEC; j++)
        x.at[j] += v.at[j];
    store<VEC>(h->x + t * h->n.width + at, x);
    return x;
}

template <int VEC> static __device__ __forceinline__ float vector_squares(const floats<VEC> &x, float mean)
{
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < VEC; j++)
        sum += (x.at[j] - mean) * (x.at[j] - mean);
    return sum;
}

template <class T, int VEC>
static __device__ __forceinline__ void norm_output(const struct device_norm *h, int64_t t, int at,
                                                   floats<VEC> x, float mean, float inverse)
{
    floats<VEC> gain = load<VEC>(h->gain + at), shift = load<VEC>(h->shift + at);
#pragma unroll
    for (int j = 0; j < VEC; j++)
        x.at[j] = (x.at[j] - mean) * inverse * gain.at[j] + shift.at[j];
    store<VEC>(static_cast<T *>(h->y) + t * h->n.width + at, x);
}

/* 1 / standard deviation. Keeps the mean and the inverse of row t for the gradient. */
static __device__ __forceinline__ float norm_inverse(const struct device_norm *h, int64_t t, float mean,
                                                     float squares)
{
    float inverse = 1.0f / sqrtf(squares / (float)h->n.width + EPSILON);
    if (threadIdx.x == 0) {
        h->stats[2 * t] = mean;
        h->stats[2 * t + 1] = inverse;
    }
    return inverse;
}

/* A row (C) of (B,T,C) a block. The variance is computed from the row in registers, in a second pass: sum(x^2) - mean^2
 * would lose digits. */
template <class T, int VEC, int PER>
static __global__ void __launch_bounds__(NORM_THREADS) norm_kernel(struct norm_work w)
{
    __shared__ float room[2][32];
    const struct device_norm *h = &w.h;
    int64_t t = blockIdx.x, width = h->n.width;
    floats<VEC> x[PER];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        x[i] = norm_input<T, VEC>(&w, t, place_of<VEC>(i));
        sum += vector_sum<VEC>(x[i]);
    }
    float mean = block_sum(sum, room[0]) / (float)width;
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (place_of<VEC>(i) < width)
            squares += vector_squares<VEC>(x[i], mean);
    float inverse = norm_inverse(h, t, mean, block_sum(squares, room[1]));
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (place_of<VEC>(i) < width)
            norm_output<T, VEC>(h, t, place_of<VEC>(i), x[i], mean, inverse);
}

/* The same for rows that do not fit into registers. A thread reads again only the elements of x that it has written
 * itself, so no barrier is needed. Without delta, x is the residual. */
template <class T, int VEC>
static __global__ void __launch_bounds__(NORM_THREADS) norm_wide_kernel(struct norm_work w)
{
    __shared__ float room[2][32];
    const struct device_norm *h = &w.h;
    int64_t t = blockIdx.x, width = h->n.width;
    const float *x = h->x + t * width;
    float sum = 0.0f, squares = 0.0f;
    int places = places_of<VEC>(width);
    for (int i = 0; i < places; i++)
        sum += vector_sum<VEC>(norm_input<T, VEC>(&w, t, place_of<VEC>(i)));
    float mean = block_sum(sum, room[0]) / (float)width;
    for (int at = place_of<VEC>(0); at < width; at += (int)blockDim.x * VEC)
        squares += vector_squares<VEC>(load<VEC>(x + at), mean);
    float inverse = norm_inverse(h, t, mean, block_sum(squares, room[1]));
    for (int at = place_of<VEC>(0); at < width; at += (int)blockDim.x * VEC)
        norm_output<T, VEC>(h, t, at, load<VEC>(x + at), mean, inverse);
}

/* ---- on the host */

template <class T, int VEC, int PER>
static cudaError_t norm_launch(cudaStream_t stream, const struct norm_work *w, unsigned threads)
{
    LAUNCH((norm_kernel<T, VEC, PER>), (unsigned)(w->h.n.rows * w->h.n.context), threads, 0, stream, *w);
    return cudaGetLastError();
}

template <class T, int VEC> static cudaError_t norm_wide(cudaStream_t stream, const struct norm_work *w)
{
    LAUNCH((norm_wide_kernel<T, VEC>), (unsigned)(w->h.n.rows * w->h.n.context), NORM_THREADS, 0, stream, *w);
    return cudaGetLastError();
}

template <class T> static cudaError_t run_norm(cudaStream_t stream, const struct norm_work *w)
{
    const struct device_norm *h = &w->h;
    int64_t width = h->n.width;
    bool vectors = width % 4 == 0 && aligned(h->residual) && aligned(h->delta) && aligned(h->bias) &&
                   aligned(h->gain) && aligned(h->shift) && aligned(h->x) && aligned(h->y);
    if (!vectors)
        return width <= 8192 ? norm_launch<T, 1, 8>(stream, w, threads_of(width, 8))
                             : norm_wide<T, 1>(stream, w);
    if (width <= 1024)
        return norm_launch<T, 4, 1>(stream, w, threads_of(width, 4));
    if (width <= 4096)
        return norm_launch<T, 4, 2>(stream, w, threads_of(width, 8));
    return width <= 16384 ? norm_launch<T, 4, 4>(stream, w, threads_of(width, 16))
                          : norm_wide<T, 4>(stream, w);
}

cudaError_t cuda_norm(cudaStream_t stream, const struct device_norm *h)
{
    struct norm_work w;
    w.h = *h;
    w.draw = dropout_draw_of(&h->dropout);
    if (h->n.width > NORM_WIDTH || (h->delta && h->type != h->kept))
        return cudaErrorInvalidValue;
    if (h->n.rows * h->n.context <= 0)
        return cudaSuccess;
    return h->type == DEVICE_F32 ? run_norm<float>(stream, &w) : run_norm<uint16_t>(stream, &w);
}
