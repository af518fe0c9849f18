/* Residual and layer norm, and back. A block takes a row, each thread VEC neighbouring elements at PER places
 * of it, which stay in registers: forward moves each array once. Backward, a block takes rows a grid apart
 * and keeps the sums over them for its columns, so that no more than a thousand partial sums a column are
 * left for fold. */
#include <math.h>

#include "trainer/device/cuda/dropout.cuh"
#include "trainer/device/cuda/fold.cuh"

#define EPSILON 1e-5f

enum { MOST_THREADS = 1024 };

template <int VEC> static __device__ __forceinline__ int64_t place_of(int i)
{
    return ((int64_t)i * blockDim.x + threadIdx.x) * VEC;
}

template <int VEC>
static __device__ __forceinline__ void drop(floats<VEC> *v, const struct dropout_draw *draw,
                                            const struct device_tokens *n, int64_t t, int64_t at)
{
    if (!draw->on)
        return;
#pragma unroll
    for (int j = 0; j < VEC; j++)
        v->at[j] *= dropout_factor(draw, t / n->context, t % n->context, at + j);
}

/* ---- forward */

struct norm_work {
    struct device_norm h;
    struct dropout_draw draw;
};

/* What goes into the norm, the threads' parts of it; returns their sum. */
template <class T, int VEC, int PER>
static __device__ __forceinline__ float norm_input(floats<VEC> x[PER], const struct norm_work *w, int64_t t)
{
    const struct device_norm *h = &w->h;
    const float *residual = h->residual + t * h->n.width;
    const T *delta = static_cast<const T *>(h->delta) + t * h->n.width;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int64_t at = place_of<VEC>(i);
        clear(&x[i]);
        if (at >= h->n.width)
            continue;
        x[i] = load<VEC>(residual + at);
        if (h->delta) {
            floats<VEC> v = load<VEC>(delta + at), bias = load<VEC>(h->bias + at);
#pragma unroll
            for (int j = 0; j < VEC; j++)
                v.at[j] += bias.at[j];
            drop<VEC>(&v, &w->draw, &h->n, t, at);
#pragma unroll
            for (int j = 0; j < VEC; j++)
                x[i].at[j] += v.at[j];
            store<VEC>(h->x + t * h->n.width + at, x[i]);
        }
#pragma unroll
        for (int j = 0; j < VEC; j++)
            sum += x[i].at[j];
    }
    return sum;
}

template <class T, int VEC, int PER>
static __device__ __forceinline__ float norm_squares(const floats<VEC> x[PER], float mean, int64_t width)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (place_of<VEC>(i) < width) {
#pragma unroll
            for (int j = 0; j < VEC; j++)
                sum += (x[i].at[j] - mean) * (x[i].at[j] - mean);
        }
    return sum;
}

template <class T, int VEC, int PER>
static __global__ void __launch_bounds__(MOST_THREADS) norm_kernel(struct norm_work w)
{
    __shared__ float room[2][32];
    const struct device_norm *h = &w.h;
    int64_t t = blockIdx.x, width = h->n.width;
    floats<VEC> x[PER];
    float mean = block_sum(norm_input<T, VEC, PER>(x, &w, t), room[0]) / (float)width;
    float squares = block_sum(norm_squares<T, VEC, PER>(x, mean, width), room[1]);
    float inverse = 1.0f / sqrtf(squares / (float)width + EPSILON);
    T *y = static_cast<T *>(h->y) + t * width;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int64_t at = place_of<VEC>(i);
        if (at >= width)
            continue;
        floats<VEC> gain = load<VEC>(h->gain + at), shift = load<VEC>(h->shift + at);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            x[i].at[j] = (x[i].at[j] - mean) * inverse * gain.at[j] + shift.at[j];
        store<VEC>(y + at, x[i]);
    }
    if (threadIdx.x == 0) {
        h->stats[2 * t] = mean;
        h->stats[2 * t + 1] = inverse;
    }
}

/* ---- backward */

struct norm_grad_work {
    struct device_norm_grad h;
    struct dropout_draw draw;
    float *parts; /* (gridDim.x,3,width): of gain, shift, bias */
};

/* With n = (x - mean) / deviation and w = dy gain: dx = (w - mean(w) - n mean(w n)) / deviation. */
template <int VEC, int PER> struct norm_sums {
    floats<VEC> gain[PER], shift[PER], bias[PER];
};

template <class T, int VEC, int PER>
static __device__ __forceinline__ void norm_grad_row(const struct norm_grad_work *w, int64_t t,
                                                     norm_sums<VEC, PER> *sums, float room[2][32])
{
    const struct device_norm_grad *h = &w->h;
    int64_t width = h->n.width, row = t * width;
    float mean = h->stats[2 * t], inverse = h->stats[2 * t + 1], a = 0.0f, b = 0.0f;
    floats<VEC> normal[PER], weighted[PER];
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int64_t at = place_of<VEC>(i);
        clear(&normal[i]);
        clear(&weighted[i]);
        if (at >= width)
            continue;
        floats<VEC> dy = load<VEC>(static_cast<const T *>(h->dy) + row + at);
        floats<VEC> gain = load<VEC>(h->gain + at);
        normal[i] = load<VEC>(h->x + row + at);
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            normal[i].at[j] = (normal[i].at[j] - mean) * inverse;
            weighted[i].at[j] = dy.at[j] * gain.at[j];
            sums->gain[i].at[j] += dy.at[j] * normal[i].at[j];
            sums->shift[i].at[j] += dy.at[j];
            a += weighted[i].at[j];
            b += weighted[i].at[j] * normal[i].at[j];
        }
    }
    /* Each one's room is free again at the other's barrier, also for the next row. */
    a = block_sum(a, room[0]) / (float)width;
    b = block_sum(b, room[1]) / (float)width;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int64_t at = place_of<VEC>(i);
        if (at >= width)
            continue;
        floats<VEC> d, before;
        clear(&before);
        if (!h->set)
            before = load<VEC>(h->dx + row + at);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            d.at[j] = (weighted[i].at[j] - a - normal[i].at[j] * b) * inverse + before.at[j];
        store<VEC>(h->dx + row + at, d);
        if (!h->ddelta && !h->dbias)
            continue;
        drop<VEC>(&d, &w->draw, &h->n, t, at);
        if (h->ddelta)
            store<VEC>(static_cast<T *>(h->ddelta) + row + at, d);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            sums->bias[i].at[j] += d.at[j];
    }
}

template <class T, int VEC, int PER>
static __global__ void __launch_bounds__(PER > 1 ? 512 : 256) norm_grad_kernel(struct norm_grad_work w)
{
    __shared__ float room[2][32];
    int64_t width = w.h.n.width, tokens = w.h.n.rows * w.h.n.context;
    norm_sums<VEC, PER> sums;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        clear(&sums.gain[i]);
        clear(&sums.shift[i]);
        clear(&sums.bias[i]);
    }
    for (int64_t t = blockIdx.x; t < tokens; t += gridDim.x)
        norm_grad_row<T, VEC, PER>(&w, t, &sums, room);
    float *to = w.parts + (int64_t)blockIdx.x * 3 * width;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int64_t at = place_of<VEC>(i);
        if (at >= width)
            continue;
        store<VEC>(to + at, sums.gain[i]);
        store<VEC>(to + width + at, sums.shift[i]);
        store<VEC>(to + 2 * width + at, sums.bias[i]);
    }
}

/* ---- on the host */

/* Whole warps for a row of `width`, when each thread has so many elements of it. */
static unsigned threads_of(int64_t width, int64_t each)
{
    int64_t threads = (width + each - 1) / each;
    return (unsigned)((threads + 31) / 32 * 32);
}

template <class T, int VEC, int PER>
static cudaError_t norm_launch(cudaStream_t stream, const struct norm_work *w, unsigned threads)
{
    LAUNCH((norm_kernel<T, VEC, PER>), (unsigned)(w->h.n.rows * w->h.n.context), threads, 0, stream, *w);
    return cudaGetLastError();
}

template <class T> static cudaError_t norm(cudaStream_t stream, const struct norm_work *w)
{
    const struct device_norm *h = &w->h;
    int64_t width = h->n.width;
    bool vectors = width % (int64_t)(16 / sizeof(T)) == 0 && aligned(h->residual) && aligned(h->delta) &&
                   aligned(h->bias) && aligned(h->gain) && aligned(h->shift) && aligned(h->x) &&
                   aligned(h->y);
    if (!vectors)
        return width <= 8192 ? norm_launch<T, 1, 8>(stream, w, threads_of(width, 8))
                             : norm_launch<T, 1, 32>(stream, w, threads_of(width, 32));
    if (width <= 1024)
        return norm_launch<T, 4, 1>(stream, w, threads_of(width, 4));
    if (width <= 4096)
        return norm_launch<T, 4, 2>(stream, w, threads_of(width, 8));
    return width <= 16384 ? norm_launch<T, 4, 4>(stream, w, threads_of(width, 16))
                          : norm_launch<T, 4, 8>(stream, w, threads_of(width, 32));
}

cudaError_t cuda_norm(cudaStream_t stream, const struct device_norm *h)
{
    struct norm_work w;
    w.h = *h;
    w.draw = dropout_draw_of(&h->dropout);
    if (h->n.width > 32768 || (h->delta && h->type != h->kept))
        return cudaErrorInvalidValue;
    if (h->n.rows * h->n.context <= 0)
        return cudaSuccess;
    return h->type == DEVICE_F32 ? norm<float>(stream, &w) : norm<uint16_t>(stream, &w);
}

/* As many blocks as fill a large GPU, and whose partial sums there is room for. */
static unsigned norm_grad_blocks(const struct device_norm_grad *h, unsigned threads)
{
    int64_t tokens = h->n.rows * h->n.context, room = FOLD_FLOATS / (3 * h->n.width);
    int64_t blocks = min((int64_t)131072 / (int64_t)threads, (int64_t)1024);
    return (unsigned)min(tokens, max((int64_t)1, min(blocks, room)));
}

template <class T, int VEC, int PER>
static cudaError_t norm_grad_launch(cudaStream_t stream, const struct norm_grad_work *w)
{
    const struct device_norm_grad *h = &w->h;
    unsigned threads = threads_of(h->n.width, VEC * PER), blocks = norm_grad_blocks(h, threads);
    LAUNCH((norm_grad_kernel<T, VEC, PER>), blocks, threads, 0, stream, *w);
    struct fold_work f = {
        {h->dgain, h->dshift, h->dbias}, w->parts, (int64_t)blocks, 3 * h->n.width, h->n.width};
    return fold(stream, &f, 3);
}

template <class T> static cudaError_t norm_grad(cudaStream_t stream, const struct norm_grad_work *w)
{
    const struct device_norm_grad *h = &w->h;
    int64_t width = h->n.width;
    bool vectors = width % (int64_t)(16 / sizeof(T)) == 0 && aligned(h->dy) && aligned(h->x) &&
                   aligned(h->gain) && aligned(h->dx) && aligned(h->ddelta);
    if (!vectors)
        return width <= 512    ? norm_grad_launch<T, 1, 2>(stream, w)
               : width <= 4096 ? norm_grad_launch<T, 1, 8>(stream, w)
                               : norm_grad_launch<T, 1, 64>(stream, w);
    if (width <= 1024)
        return norm_grad_launch<T, 4, 1>(stream, w);
    if (width <= 4096)
        return norm_grad_launch<T, 4, 2>(stream, w);
    return width <= 8192 ? norm_grad_launch<T, 4, 4>(stream, w) : norm_grad_launch<T, 4, 16>(stream, w);
}

cudaError_t cuda_norm_grad(cudaStream_t stream, const struct cuda_workspace *room,
                           const struct device_norm_grad *h)
{
    struct norm_grad_work w;
    w.h = *h;
    w.draw = dropout_draw_of(&h->dropout);
    w.parts = static_cast<float *>(room->memory);
    if (h->n.width > 32768 || h->type != h->kept)
        return cudaErrorInvalidValue;
    if (h->n.rows * h->n.context <= 0)
        return cudaSuccess;
    return h->type == DEVICE_F32 ? norm_grad<float>(stream, &w) : norm_grad<uint16_t>(stream, &w);
}
