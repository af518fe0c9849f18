#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_NORM_GRAD_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_NORM_GRAD_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients of residual and layer norm: norm_grad of device.h. */

cudaError_t cuda_norm_grad(cudaStream_t stream, const struct cuda_workspace *w,
                           const struct device_norm_grad *h);

#ifdef __cplusplus
}
#endif

#endif
