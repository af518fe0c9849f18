#ifndef DDP_TRAINER_DEVICE_CUDA_FOLD_CUH
#define DDP_TRAINER_DEVICE_CUDA_FOLD_CUH

#include "trainer/device/cuda/kernels/kernels.h"
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/vector.cuh"

/* The second stage of sums over many rows: kernels leave partial sums in the workspace, and fold_parts adds them in a
 * fixed order. Up to three arrays at once: to[i] (n) += the sum over p of parts[p * stride + i * n]. */

enum { FOLD_COLUMNS = 32, FOLD_ROWS = 16, FOLD_FLOATS = 4 << 20 /* the most floats that parts has */ };

struct fold_work {
    float *to[3]; /* NULL: not needed */
    const float *parts;
    int64_t count, stride, n;
};

static __global__ void fold_kernel(struct fold_work w)
{
    __shared__ float sums[FOLD_ROWS][FOLD_COLUMNS];
    int64_t column = (int64_t)blockIdx.x * FOLD_COLUMNS + threadIdx.x;
    float *to = blockIdx.y == 0 ? w.to[0] : blockIdx.y == 1 ? w.to[1] : w.to[2];
    const float *from = w.parts + (int64_t)blockIdx.y * w.n + column;
    float sum = 0.0f;
    if (to && column < w.n) {
#pragma unroll 8
        for (int64_t p = threadIdx.y; p < w.count; p += FOLD_ROWS)
            sum += from[p * w.stride];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads(); /* the first row of threads reads the sums of the others */
    if (threadIdx.y > 0 || !to || column >= w.n)
        return;
    for (int i = 1; i < FOLD_ROWS; i++)
        sum += sums[i][threadIdx.x];
    to[column] += sum;
}

static inline cudaError_t fold_parts(cudaStream_t stream, const struct fold_work *w, unsigned arrays)
{
    LAUNCH(fold_kernel, dim3(blocks_of((size_t)w->n, FOLD_COLUMNS), arrays), dim3(FOLD_COLUMNS, FOLD_ROWS), 0,
           stream, *w);
    return cudaGetLastError();
}

#endif
