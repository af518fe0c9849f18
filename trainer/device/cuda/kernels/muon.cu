/* The parts of a Muon update around its matrix products. A matrix in the flat arrays may be every third block of columns
 * of a tensor, so a thread takes one element of it: the time of an update is that of its products. */
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/muon.h"
#include "trainer/device/cuda/kernels/vector.cuh"

enum { THREADS = 256 };

/* Each operation is rounded by itself (vector.cuh). */

static __global__ void direction_kernel(float *u, const float *g, float *m, int64_t n, int64_t cols,
                                        int64_t stride, float momentum, const float *scale)
{
    int64_t i = thread_index();
    if (i >= n)
        return;
    int64_t at = i / cols * stride + i % cols;
    float d = mul_rounded(g[at], scale ? *scale : 1.0f);
    float v = add_rounded(mul_rounded(momentum, m[at]), d);
    m[at] = v;
    u[i] = add_rounded(d, mul_rounded(momentum, v));
}

cudaError_t cuda_muon_direction(cudaStream_t stream, const struct device_muon *h,
                                const struct device_matrix *t, float *u, const float *g, float *m)
{
    int64_t n = t->rows * t->cols;
    LAUNCH(direction_kernel, blocks_of((size_t)n, THREADS), THREADS, 0, stream, u, g + t->offset,
           m + t->offset, n, t->cols, t->stride, h->momentum, h->scale);
    return cudaGetLastError();
}

template <class T>
static __global__ void normalize_kernel(T *x, const float *u, const double *squares, int64_t n)
{
    int64_t i = thread_index();
    if (i < n)
        narrowed(x + i, mul_rounded(u[i], (float)(1.0 / (sqrt(*squares) + 1e-7))));
}

cudaError_t cuda_muon_normalize(cudaStream_t stream, enum device_type type, void *x, const float *u,
                                const double *squares, size_t n)
{
    if (type == DEVICE_BF16)
        LAUNCH(normalize_kernel<uint16_t>, blocks_of(n, THREADS), THREADS, 0, stream,
               static_cast<uint16_t *>(x), u, squares, (int64_t)n);
    else
        LAUNCH(normalize_kernel<float>, blocks_of(n, THREADS), THREADS, 0, stream, static_cast<float *>(x), u,
               squares, (int64_t)n);
    return cudaGetLastError();
}

template <class T>
static __global__ void combine_kernel(T *to, float by_to, const T *from, float by_from, int64_t n)
{
    int64_t i = thread_index();
    if (i < n)
        narrowed(to + i,
                 add_rounded(mul_rounded(by_to, widened(to[i])), mul_rounded(by_from, widened(from[i]))));
}

cudaError_t cuda_muon_combine(cudaStream_t stream, enum device_type type, void *to, float by_to,
                              const void *from, float by_from, size_t n)
{
    if (type == DEVICE_BF16)
        LAUNCH(combine_kernel<uint16_t>, blocks_of(n, THREADS), THREADS, 0, stream,
               static_cast<uint16_t *>(to), by_to, static_cast<const uint16_t *>(from), by_from, (int64_t)n);
    else
        LAUNCH(combine_kernel<float>, blocks_of(n, THREADS), THREADS, 0, stream, static_cast<float *>(to),
               by_to, static_cast<const float *>(from), by_from, (int64_t)n);
    return cudaGetLastError();
}

template <class T>
static __global__ void apply_kernel(float *p, const T *x, int64_t n, int64_t cols, int64_t stride, float keep,
                                    float step)
{
    int64_t i = thread_index();
    if (i >= n)
        return;
    int64_t at = i / cols * stride + i % cols;
    p[at] = add_rounded(mul_rounded(keep, p[at]), -mul_rounded(step, widened(x[i])));
}

cudaError_t cuda_muon_apply(cudaStream_t stream, const struct device_muon *h, const struct device_matrix *t,
                            float *p, const void *x)
{
    int64_t n = t->rows * t->cols;
    float keep = 1.0f - h->lr * h->weight_decay, step = h->lr * t->scale;
    if (h->kept == DEVICE_BF16)
        LAUNCH(apply_kernel<uint16_t>, blocks_of((size_t)n, THREADS), THREADS, 0, stream, p + t->offset,
               static_cast<const uint16_t *>(x), n, t->cols, t->stride, keep, step);
    else
        LAUNCH(apply_kernel<float>, blocks_of((size_t)n, THREADS), THREADS, 0, stream, p + t->offset,
               static_cast<const float *>(x), n, t->cols, t->stride, keep, step);
    return cudaGetLastError();
}
