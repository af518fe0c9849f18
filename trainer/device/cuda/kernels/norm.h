#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_NORM_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_NORM_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Residual and layer norm: norm of device.h. */

cudaError_t cuda_norm(cudaStream_t stream, const struct device_norm *h);

#ifdef __cplusplus
}
#endif

#endif
