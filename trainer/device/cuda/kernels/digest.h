#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_DIGEST_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_DIGEST_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Digests of arrays, to compare the parameters of ranks. x lies at a 16-byte boundary; sums has one element for each
 * 1024 of x. */

cudaError_t cuda_digest(cudaStream_t stream, uint64_t *sums, const float *x, size_t n);

#ifdef __cplusplus
}
#endif

#endif
