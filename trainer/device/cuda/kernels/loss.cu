/* Losses and their gradients. A block takes every gridDim.x-th row and adds their losses in order; one block adds
 * those of all blocks at the end. Logits are read twice, the second time from the cache, and the gradient may
 * overwrite them. Probabilities are never stored. */
#include <float.h>
#include <math.h>

#include "trainer/device/cuda/kernels/kernels.h"
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/power.cuh"
#include "trainer/device/cuda/kernels/vector.cuh"

/* Two blocks of wide rows fit on a multiprocessor, so that one computes while the other waits at a barrier. */
enum { THREADS = 256, WIDE_THREADS = 512, WIDE = 8192, BLOCKS = 4096, CLASSES = 1 << 30 /* limit */ };

/* ---- tallies: sums of losses and of correct predictions */

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

/* The largest element of a part of a row, and the sum of e^(x - top) over it. A NaN is never the largest, but makes the
 * sum a NaN. */
struct softmax {
    float top, sum;
};

/* Joins two parts: each sum is scaled to the larger top. */
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

/* Joins the parts of all threads of the block. All threads get the result of lane 0: the lanes of a warp join their
 * parts in different orders, and their results may differ in the last bit. */
static __device__ __forceinline__ struct softmax softmax_block(struct softmax mine, struct softmax *room)
{
    int warps = (int)(blockDim.x / 32);
    mine = softmax_warp(mine);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = mine;
    __syncthreads(); /* the first warp reads what all warps have written */
    if (threadIdx.x < 32) {
        struct softmax none = {-FLT_MAX, 0.0f};
        mine = softmax_warp((int)threadIdx.x < warps ? room[threadIdx.x] : none);
        if (threadIdx.x == 0)
            room[32] = mine;
    }
    __syncthreads();
    return room[32];
}

template <int VEC> static __device__ __forceinline__ float vector_max(const floats<VEC> &x)
{
    float top = x.at[0];
#pragma unroll
    for (int j = 1; j < VEC; j++)
        top = fmaxf(top, x.at[j]);
    return top;
}

template <int VEC>
static __device__ __forceinline__ void softmax_see(struct softmax *s, const floats<VEC> &x, float top)
{
    if (top > s->top) {
        s->sum *= power_below(s->top, top);
        s->top = top;
    }
#pragma unroll
    for (int j = 0; j < VEC; j++)
        s->sum += power_below(x.at[j], s->top);
}

struct classes_work {
    struct device_classes h;
    struct device_tally *parts;
};

/* Whether one of the outputs at `at`, whose largest is top, ranks before the label's output. Of equal outputs, the
 * first ranks first. */
template <int VEC>
static __device__ __forceinline__ bool is_ahead(const floats<VEC> &x, float top, int at, float label_x,
                                                int label)
{
    bool ahead = false;
    if (at > label)
        return top > label_x;
    if (at + VEC <= label)
        return top >= label_x;
#pragma unroll
    for (int j = 0; j < VEC; j++)
        ahead |= at + j < label ? x.at[j] >= label_x : x.at[j] > label_x;
    return ahead;
}

/* What a thread knows of its part of a row. */
struct row_seen {
    struct softmax softmax;
    float label_x;
    int label, ahead; /* ahead: 1 if another output ranks before the label's: the prediction is wrong */
};

template <int VEC>
static __device__ __forceinline__ void row_see(struct row_seen *seen, const floats<VEC> &v, int at)
{
    float top = vector_max<VEC>(v);
    softmax_see<VEC>(&seen->softmax, v, top);
    seen->ahead |= is_ahead<VEC>(v, top, at, seen->label_x, seen->label);
}

/* Reads the whole vectors of a row, two in flight. A second vector behind the end counts as -infinity. */
template <int VEC, class T>
static __device__ __forceinline__ void row_see_all(struct row_seen *seen, const T *x, int whole)
{
    int step = (int)blockDim.x * VEC;
    for (int i = (int)threadIdx.x * VEC; i < whole; i += 2 * step) {
        floats<VEC> first = load<VEC>(x + i), second;
#pragma unroll
        for (int j = 0; j < VEC; j++)
            second.at[j] = -INFINITY;
        if (i + step < whole)
            second = load<VEC>(x + i + step);
        row_see<VEC>(seen, first, i);
        row_see<VEC>(seen, second, i + step);
    }
}

/* v = factor e^(v - top), less `scale` for the label: scale (softmax - onehot), with factor = scale / sum. */
template <int VEC>
static __device__ __forceinline__ void logits_grad(floats<VEC> *v, int at, float top, float factor,
                                                   float scale, int label)
{
#pragma unroll
    for (int j = 0; j < VEC; j++)
        v->at[j] = power_below(v->at[j], top) * factor;
    if (at > label || at + VEC <= label)
        return;
#pragma unroll
    for (int j = 0; j < VEC; j++)
        v->at[j] -= at + j == label ? scale : 0.0f;
}

template <class T, int VEC>
static __device__ __forceinline__ void gradient_row(const struct device_classes *h, T *dx, const T *x,
                                                    struct softmax all, int label)
{
    float factor = h->scale / all.sum;
    int classes = (int)h->classes, whole = classes / VEC * VEC;
    int step = (int)blockDim.x * VEC;
    for (int i = (int)threadIdx.x * VEC; i < whole; i += 2 * step) { /* two vectors in flight */
        bool two = i + step < whole;
        floats<VEC> v = load<VEC>(x + i), second = load<VEC>(x + (two ? i + step : i));
        logits_grad<VEC>(&v, i, all.top, factor, h->scale, label);
        store<VEC>(dx + i, v);
        if (!two)
            break;
        logits_grad<VEC>(&second, i + step, all.top, factor, h->scale, label);
        store<VEC>(dx + i + step, second);
    }
    /* Columns between classes and stride are padding: their gradient is 0. */
    for (int i = whole + (int)threadIdx.x; i < (int)h->stride; i += (int)blockDim.x) {
        floats<1> v = {{0.0f}};
        if (i < classes) {
            v = load<1>(x + i);
            logits_grad<1>(&v, i, all.top, factor, h->scale, label);
        }
        store<1>(dx + i, v);
    }
}

/* Loss, correct predictions and, if dx is not NULL, the gradient of logits x (rows,stride), by class labels (rows). */
template <class T, int VEC>
static __global__ void __launch_bounds__(WIDE_THREADS, 2) cross_entropy_kernel(struct classes_work w)
{
    __shared__ struct softmax room[33];
    __shared__ int counts[32];
    const struct device_classes *h = &w.h;
    struct device_tally mine = {0.0, 0.0};
    int classes = (int)h->classes, whole = classes / VEC * VEC;
    for (int64_t row = blockIdx.x; row < h->rows; row += gridDim.x) {
        const T *x = static_cast<const T *>(h->x) + row * h->stride;
        int label = h->label[row];
        struct row_seen seen = {{-FLT_MAX, 0.0f}, widened(x[label]), label, 0};
        row_see_all<VEC>(&seen, x, whole);
        for (int i = whole + (int)threadIdx.x; i < classes; i += (int)blockDim.x)
            row_see<1>(&seen, load<1>(x + i), i);
        struct softmax all = softmax_block(seen.softmax, room);
        int ahead = block_sum(seen.ahead, counts);
        /* -log softmax(label) = top + log(sum) - x(label) */
        mine.loss += (double)(all.top - seen.label_x) + log((double)all.sum);
        /* The comparison with top makes a row whose label has a NaN wrong. */
        mine.correct += ahead == 0 && seen.label_x == all.top ? 1.0 : 0.0;
        if (h->dx)
            gradient_row<T, VEC>(h, static_cast<T *>(h->dx) + row * h->stride, x, all, label);
    }
    if (threadIdx.x == 0)
        w.parts[blockIdx.x] = mine;
}

template <class T> static cudaError_t run_cross_entropy(cudaStream_t stream, const struct classes_work *w)
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
    if (h->type != h->kept || h->stride > CLASSES)
        return cudaErrorInvalidValue;
    if (h->rows <= 0)
        return cudaSuccess;
    return h->type == DEVICE_F32 ? run_cross_entropy<float>(stream, &w)
                                 : run_cross_entropy<uint16_t>(stream, &w);
}

/* ---- mean square */

struct mse_work {
    float *dx;
    const float *x, *y;
    int64_t rows, cols;
    float factor;
    struct device_tally *parts;
};

/* loss += the mean over the columns of (x - y)^2, for each row; dx = factor (x - y). */
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
        __syncthreads(); /* all threads have read `room`, so the next row may write it */
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
