/* Losses and their gradients. A block takes a row, and further ones a grid away; its rows' sums are added in
 * their order, and the blocks' by one block at the end. Logits are read twice, the second time from the
 * cache, and the gradient is written where they lie; probabilities are never kept. */
#include <float.h>
#include <math.h>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/launch.cuh"
#include "trainer/device/cuda/vector.cuh"

enum { THREADS = 256, WIDE_THREADS = 1024, WIDE = 8192, BLOCKS = 4096 };

/* ---- tallies */

static __global__ void tally_kernel(struct device_tally *to, const struct device_tally *parts, int count,
                                    double weight)
{
    __shared__ double room[2][32];
    double loss = 0.0, correct = 0.0;
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        loss += parts[i].loss;
        correct += parts[i].correct;
    }
    loss = block_sum(loss, room[0]);
    correct = block_sum(correct, room[1]);
    if (threadIdx.x == 0) {
        to->loss += weight * loss;
        to->correct += weight * correct;
    }
}

static cudaError_t tally_up(cudaStream_t stream, struct device_tally *to, const struct device_tally *parts,
                            unsigned count, double weight)
{
    LAUNCH(tally_kernel, 1, THREADS, 0, stream, to, parts, (int)count, weight);
    return cudaGetLastError();
}

static __global__ void tally_mean_kernel(float *to, const struct device_tally *tally, double divisor)
{
    *to = (float)(tally->loss / divisor);
}

cudaError_t cuda_tally_mean(cudaStream_t stream, float *to, const struct device_tally *tally, double divisor)
{
    LAUNCH(tally_mean_kernel, 1, 1, 0, stream, to, tally, divisor);
    return cudaGetLastError();
}

/* ---- softmax and cross-entropy */

/* Of some of a row: the largest, and the sum of e^(x - top). A NaN is not the largest, and shows in the
 * sum. */
struct softmax {
    float top, sum;
};

static __device__ __forceinline__ struct softmax softmax_both(struct softmax a, struct softmax b)
{
    struct softmax c;
    c.top = fmaxf(a.top, b.top);
    c.sum = a.sum * expf(a.top - c.top) + b.sum * expf(b.top - c.top);
    return c;
}

static __device__ __forceinline__ struct softmax softmax_warp(struct softmax mine)
{
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        struct softmax other;
        other.top = __shfl_xor_sync(0xffffffffu, mine.top, by);
        other.sum = __shfl_xor_sync(0xffffffffu, mine.sum, by);
        mine = softmax_both(mine, other);
    }
    return mine;
}

/* The same in all threads: that of lane 0, whose order of the two counts. */
static __device__ __forceinline__ struct softmax softmax_block(struct softmax mine, struct softmax *room)
{
    int warps = (int)(blockDim.x / 32);
    mine = softmax_warp(mine);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        struct softmax none = {-FLT_MAX, 0.0f};
        mine = softmax_warp((int)threadIdx.x < warps ? room[threadIdx.x] : none);
        if (threadIdx.x == 0)
            room[32] = mine;
    }
    __syncthreads();
    return room[32];
}

template <int VEC> static __device__ __forceinline__ void softmax_see(struct softmax *s, const floats<VEC> &x)
{
    float top = x.at[0];
#pragma unroll
    for (int j = 1; j < VEC; j++)
        top = fmaxf(top, x.at[j]);
    if (top > s->top) {
        s->sum *= expf(s->top - top);
        s->top = top;
    }
#pragma unroll
    for (int j = 0; j < VEC; j++)
        s->sum += expf(x.at[j] - s->top);
}

struct classes_work {
    struct device_classes h;
    struct device_tally *parts;
};

/* How many outputs of those at `at` come before the label's in the order of size, the first of equals first.
 */
template <int VEC>
static __device__ __forceinline__ int ahead_of(const floats<VEC> &x, int64_t at, float label_x, int64_t label)
{
    int ahead = 0;
#pragma unroll
    for (int j = 0; j < VEC; j++)
        ahead += x.at[j] > label_x || (x.at[j] == label_x && at + j < label) ? 1 : 0;
    return ahead;
}

template <class T, int VEC>
static __device__ __forceinline__ void gradient_row(const struct device_classes *h, T *dx, const T *x,
                                                    struct softmax all, int64_t label)
{
    float factor = h->scale / all.sum;
    int64_t whole = h->classes / VEC * VEC;
    for (int64_t i = (int64_t)threadIdx.x * VEC; i < whole; i += (int64_t)blockDim.x * VEC) {
        floats<VEC> v = load<VEC>(x + i);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            v.at[j] = expf(v.at[j] - all.top) * factor - (i + j == label ? h->scale : 0.0f);
        store<VEC>(dx + i, v);
    }
    for (int64_t i = whole + threadIdx.x; i < h->stride; i += blockDim.x) {
        float d = 0.0f;
        if (i < h->classes)
            d = expf(widened(x[i]) - all.top) * factor - (i == label ? h->scale : 0.0f);
        narrowed(dx + i, d);
    }
}

template <class T, int VEC>
static __global__ void __launch_bounds__(WIDE_THREADS) cross_entropy_kernel(struct classes_work w)
{
    __shared__ struct softmax room[33];
    __shared__ int counts[32];
    const struct device_classes *h = &w.h;
    struct device_tally mine = {0.0, 0.0};
    int64_t whole = h->classes / VEC * VEC;
    for (int64_t row = blockIdx.x; row < h->rows; row += gridDim.x) {
        const T *x = static_cast<const T *>(h->x) + row * h->stride;
        int64_t label = h->label[row];
        float label_x = widened(x[label]);
        struct softmax all = {-FLT_MAX, 0.0f};
        int ahead = 0;
#pragma unroll 2
        for (int64_t i = (int64_t)threadIdx.x * VEC; i < whole; i += (int64_t)blockDim.x * VEC) {
            floats<VEC> v = load<VEC>(x + i);
            softmax_see<VEC>(&all, v);
            ahead += ahead_of<VEC>(v, i, label_x, label);
        }
        for (int64_t i = whole + threadIdx.x; i < h->classes; i += blockDim.x) {
            floats<1> v = load<1>(x + i);
            softmax_see<1>(&all, v);
            ahead += ahead_of<1>(v, i, label_x, label);
        }
        all = softmax_block(all, room);
        ahead = block_sum(ahead, counts);
        mine.loss += (double)(all.top - label_x) + log((double)all.sum);
        mine.correct += ahead == 0 && label_x == all.top ? 1.0 : 0.0;
        if (h->dx)
            gradient_row<T, VEC>(h, static_cast<T *>(h->dx) + row * h->stride, x, all, label);
    }
    if (threadIdx.x == 0)
        w.parts[blockIdx.x] = mine;
}

template <class T> static cudaError_t cross_entropy(cudaStream_t stream, const struct classes_work *w)
{
    constexpr int VEC = 16 / (int)sizeof(T);
    const struct device_classes *h = &w->h;
    unsigned blocks = h->rows < BLOCKS ? (unsigned)h->rows : (unsigned)BLOCKS;
    unsigned threads = h->classes > WIDE ? WIDE_THREADS : h->classes > WIDE / 8 ? THREADS : 64;
    if (h->stride % VEC == 0 && aligned(h->x) && aligned(h->dx))
        LAUNCH((cross_entropy_kernel<T, VEC>), blocks, threads, 0, stream, *w);
    else
        LAUNCH((cross_entropy_kernel<T, 1>), blocks, threads, 0, stream, *w);
    return tally_up(stream, h->tally, w->parts, blocks, h->weight);
}

cudaError_t cuda_cross_entropy(cudaStream_t stream, const struct cuda_workspace *room,
                               const struct device_classes *h)
{
    struct classes_work w;
    w.h = *h;
    w.parts = static_cast<struct device_tally *>(room->memory);
    if (h->type != h->kept)
        return cudaErrorInvalidValue;
    if (h->rows <= 0)
        return cudaSuccess;
    return h->type == DEVICE_F32 ? cross_entropy<float>(stream, &w) : cross_entropy<uint16_t>(stream, &w);
}

/* ---- mean square */

struct mse_work {
    float *dx;
    const float *x, *y;
    int64_t rows, cols;
    float factor;
    struct device_tally *parts;
};

static __global__ void mse_kernel(struct mse_work w)
{
    __shared__ double room[32];
    struct device_tally mine = {0.0, 0.0};
    for (int64_t row = blockIdx.x; row < w.rows; row += gridDim.x) {
        double sum = 0.0;
        for (int64_t j = threadIdx.x; j < w.cols; j += blockDim.x) {
            float away = w.x[row * w.cols + j] - w.y[row * w.cols + j];
            sum += (double)away * (double)away;
            if (w.dx)
                w.dx[row * w.cols + j] = away * w.factor;
        }
        mine.loss += block_sum(sum, room) / (double)w.cols;
        __syncthreads(); /* the room is free again */
    }
    if (threadIdx.x == 0)
        w.parts[blockIdx.x] = mine;
}

cudaError_t cuda_mse(cudaStream_t stream, const struct cuda_workspace *room, float *dx, const float *x,
                     const float *y, int64_t rows, int64_t cols, float scale, struct device_tally *tally)
{
    struct mse_work w = {
        dx, x, y, rows, cols, 2.0f * scale / (float)cols, static_cast<struct device_tally *>(room->memory)};
    unsigned blocks = rows < BLOCKS ? (unsigned)rows : (unsigned)BLOCKS;
    if (rows <= 0)
        return cudaSuccess;
    LAUNCH(mse_kernel, blocks, cols > 64 ? THREADS : 32, 0, stream, w);
    return tally_up(stream, tally, w.parts, blocks, 1.0);
}
