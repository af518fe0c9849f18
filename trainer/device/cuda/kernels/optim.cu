/* Updates of the parameters: the sum of squares of the gradient, the scale that clips it, and the optimizers. A thread
 * takes 16 bytes of each array, and each array is read and written once. */
#include <math.h>

#include "trainer/device/cuda/kernels/kernels.h"
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/ranges.cuh"
#include "trainer/device/cuda/kernels/vector.cuh"

enum { THREADS = 256, SQUARES_BLOCKS = 1024 };

/* ---- sum of squares
 *
 * Each block leaves its sum in the workspace, and one block adds them. Which elements a thread takes depends on n and
 * the alignment only, so the sum is the same every time. */

template <int VEC> static __global__ void squares_kernel(double *parts, const float *x, int64_t n)
{
    __shared__ double room[32];
    double sum = 0.0;
    int64_t step = (int64_t)gridDim.x * THREADS * VEC;
#pragma unroll 4
    for (int64_t i = thread_index() * VEC; i < n; i += step) {
        if (i + VEC <= n) {
            floats<VEC> v = load<VEC>(x + i);
#pragma unroll
            for (int j = 0; j < VEC; j++)
                sum += (double)v.at[j] * (double)v.at[j];
        } else {
            for (int64_t j = i; j < n; j++)
                sum += (double)x[j] * (double)x[j];
        }
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

static __global__ void squares_fold_kernel(double *out, const double *parts, int count)
{
    __shared__ double room[32];
    double sum = 0.0;
    for (int i = (int)threadIdx.x; i < count; i += THREADS)
        sum += parts[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        *out = sum;
}

cudaError_t cuda_sum_squares(cudaStream_t stream, const struct cuda_workspace *w, const float *x, size_t n,
                             double *out)
{
    double *parts = static_cast<double *>(w->memory);
    size_t vec = aligned(x) ? 4 : 1, wanted = (n + THREADS * vec - 1) / (THREADS * vec);
    unsigned blocks = wanted < SQUARES_BLOCKS ? (unsigned)wanted : (unsigned)SQUARES_BLOCKS;
    if (n > 0 && vec == 4)
        LAUNCH(squares_kernel<4>, blocks, THREADS, 0, stream, parts, x, (int64_t)n);
    else if (n > 0)
        LAUNCH(squares_kernel<1>, blocks, THREADS, 0, stream, parts, x, (int64_t)n);
    LAUNCH(squares_fold_kernel, 1, THREADS, 0, stream, out, parts, (int)blocks);
    return cudaGetLastError();
}

/* The scale of PyTorch's clip_grad_norm_: clip / (norm + 1e-6), at most 1. */
static __global__ void clip_scale_kernel(float *scale, const double *squares, double clip)
{
    double by = clip / (sqrt(*squares) + 1e-6);
    *scale = (float)(by < 1.0 ? by : 1.0);
}

cudaError_t cuda_clip_scale(cudaStream_t stream, float *scale, const double *squares, double clip)
{
    LAUNCH(clip_scale_kernel, 1, 1, 0, stream, scale, squares, clip);
    return cudaGetLastError();
}

/* ---- the optimizers. Each operation is rounded by itself (vector.cuh). */

/* SGD with momentum, as in PyTorch without dampening: d = by g + weight_decay p, v = momentum v + d, p -= lr v; with
 * Nesterov p -= lr (d + momentum v). */
struct sgd {
    float lr, momentum, weight_decay;
    bool nesterov;
    const float *scale;
    __device__ float factor(void) const
    {
        return scale ? *scale : 1.0f;
    }
    __device__ void apply(float *p, float g, float *v, float *unused, float by) const
    {
        float d = add_rounded(mul_rounded(g, by), mul_rounded(weight_decay, *p));
        (void)unused;
        if (momentum != 0.0f) {
            *v = add_rounded(mul_rounded(momentum, *v), d);
            d = nesterov ? add_rounded(d, mul_rounded(momentum, *v)) : *v;
        }
        *p = add_rounded(*p, -mul_rounded(lr, d));
    }
};

/* AdamW (Loshchilov and Hutter, arXiv 1711.05101). The corrections of the first steps are in `step` and `root`. */
struct adamw {
    float beta1, beta2, rest1, rest2; /* rest: 1 - beta */
    float keep, step, root, eps;
    const float *scale;
    __device__ float factor(void) const
    {
        return scale ? *scale : 1.0f;
    }
    __device__ void apply(float *p, float g, float *m, float *v, float by) const
    {
        float d = mul_rounded(g, by);
        *m = add_rounded(mul_rounded(beta1, *m), mul_rounded(rest1, d));
        *v = add_rounded(mul_rounded(beta2, *v), mul_rounded(mul_rounded(rest2, d), d));
        float size = add_rounded(mul_rounded(__fsqrt_rn(*v), root), eps);
        *p = add_rounded(mul_rounded(keep, *p), -__fdiv_rn(mul_rounded(step, *m), size));
    }
};

/* Updates p from g and the optimizer's STATES state arrays: m, then v. */
template <int VEC, int STATES, class F>
static __global__ void update_kernel(float *p, const float *g, float *m, float *v, int64_t n, F f)
{
    int64_t i = thread_index() * VEC;
    float by = f.factor(); /* the scale that clips the gradient */
    if (i + VEC <= n) {
        floats<VEC> at = load<VEC>(p + i), d = load<VEC>(g + i), first, second;
        clear(&first);
        clear(&second);
        if (STATES > 0)
            first = load<VEC>(m + i);
        if (STATES > 1)
            second = load<VEC>(v + i);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            f.apply(&at.at[j], d.at[j], &first.at[j], &second.at[j], by);
        store<VEC>(p + i, at);
        if (STATES > 0)
            store<VEC>(m + i, first);
        if (STATES > 1)
            store<VEC>(v + i, second);
        return;
    }
    /* The last thread may have fewer than VEC elements. */
    for (; i < n; i++) {
        float first = STATES > 0 ? m[i] : 0.0f, second = STATES > 1 ? v[i] : 0.0f;
        f.apply(p + i, g[i], &first, &second, by);
        if (STATES > 0)
            m[i] = first;
        if (STATES > 1)
            v[i] = second;
    }
}

template <int STATES, class F>
static cudaError_t run_update(cudaStream_t stream, float *p, const float *g, float *m, float *v, size_t n,
                              F f)
{
    if (n == 0)
        return cudaSuccess;
    if (aligned(p) && aligned(g) && aligned(m) && aligned(v))
        LAUNCH((update_kernel<4, STATES, F>), blocks_of(n, THREADS * 4), THREADS, 0, stream, p, g, m, v,
               (int64_t)n, f);
    else
        LAUNCH((update_kernel<1, STATES, F>), blocks_of(n, THREADS), THREADS, 0, stream, p, g, m, v,
               (int64_t)n, f);
    return cudaGetLastError();
}

cudaError_t cuda_sgd(cudaStream_t stream, const struct device_sgd *h, float *p, const float *g, float *v,
                     size_t n)
{
    struct sgd f = {h->lr, h->momentum, h->weight_decay, h->nesterov, h->scale};
    if (h->momentum == 0.0f)
        return run_update<0>(stream, p, g, NULL, NULL, n, f);
    return run_update<1>(stream, p, g, v, NULL, n, f);
}

static struct adamw adamw_of(const struct device_adamw *h)
{
    struct adamw f;
    f.beta1 = h->beta1;
    f.beta2 = h->beta2;
    f.rest1 = 1.0f - h->beta1;
    f.rest2 = 1.0f - h->beta2;
    f.keep = 1.0f - h->lr * h->weight_decay;
    f.step = h->lr / h->correction1;
    f.root = 1.0f / sqrtf(h->correction2);
    f.eps = h->eps;
    f.scale = h->scale;
    return f;
}

cudaError_t cuda_adamw(cudaStream_t stream, const struct device_adamw *h, float *p, const float *g, float *m,
                       float *v, size_t n)
{
    return run_update<2>(stream, p, g, m, v, n, adamw_of(h));
}

/* ---- AdamW of all parameters in one launch, which also rounds them for the products of the next step */

struct ranges_work {
    float *p;
    const float *g;
    float *m, *v;
    uint16_t *narrowed; /* NULL: not wanted */
    const struct device_range *ranges;
    int count;
};

/* Updates VEC elements of a range, from its element i on. The pointers are those of the range. */
template <int VEC>
static __device__ __forceinline__ void adamw_some(const struct ranges_work &w, int64_t i, const struct adamw &f,
                                                  float by)
{
    floats<VEC> at = load<VEC>(w.p + i), d = load<VEC>(w.g + i), first = load<VEC>(w.m + i),
                second = load<VEC>(w.v + i);
#pragma unroll
    for (int j = 0; j < VEC; j++)
        f.apply(&at.at[j], d.at[j], &first.at[j], &second.at[j], by);
    store<VEC>(w.p + i, at);
    store<VEC>(w.m + i, first);
    store<VEC>(w.v + i, second);
    if (w.narrowed)
        store<VEC>(w.narrowed + i, at);
}

template <int VEC> static __global__ void adamw_ranges_kernel(struct ranges_work w, struct adamw f)
{
    const struct device_range r = range_of_block(w.ranges, w.count);
    const int64_t n = (int64_t)r.count, from = range_start(r);
    float by = f.factor();
    f.keep = r.decays ? f.keep : 1.0f;
    w.p += r.offset;
    w.g += r.offset;
    w.m += r.offset;
    w.v += r.second;
    w.narrowed = w.narrowed ? w.narrowed + r.offset : NULL;
#pragma unroll
    for (int k = 0; k < DEVICE_RANGE_BLOCK; k += THREADS * VEC) {
        int64_t i = from + k + (int64_t)threadIdx.x * VEC;
        if (i + VEC <= n)
            adamw_some<VEC>(w, i, f, by);
        else /* the range may end within the elements of a thread */
            for (; i < n; i++)
                adamw_some<1>(w, i, f, by);
    }
}

cudaError_t cuda_adamw_ranges(cudaStream_t stream, const struct device_adamw *h,
                              const struct device_ranges *ranges, float *p, const float *g, float *m, float *v,
                              void *narrowed)
{
    struct ranges_work w = {p, g, m, v, static_cast<uint16_t *>(narrowed), ranges->items, (int)ranges->count};
    if (ranges->count == 0)
        return cudaSuccess;
    if (ranges->aligned && aligned(p) && aligned(g) && aligned(m) && aligned(v) && aligned(narrowed))
        LAUNCH(adamw_ranges_kernel<4>, (unsigned)ranges->blocks, THREADS, 0, stream, w, adamw_of(h));
    else
        LAUNCH(adamw_ranges_kernel<1>, (unsigned)ranges->blocks, THREADS, 0, stream, w, adamw_of(h));
    return cudaGetLastError();
}
