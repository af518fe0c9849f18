#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_NORM_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_NORM_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layer norms over the rows of an array. */

cudaError_t cuda_norm(cudaStream_t stream, const struct device_norm *h);

#ifdef __cplusplus
}
#endif

#endif
