#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_FLAT_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_FLAT_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operations on every element of arrays of n floats: narrow, activate, activate_grad, scale and add of device.h; and the
 * reverse of narrow. */

cudaError_t cuda_narrow(cudaStream_t stream, void *bf16, const float *x, size_t n);
cudaError_t cuda_widen(cudaStream_t stream, float *y, const void *bf16, size_t n);
cudaError_t cuda_activate(cudaStream_t stream, enum device_activation kind, float *y, const float *x,
                          size_t n);
cudaError_t cuda_activate_grad(cudaStream_t stream, enum device_activation kind, float *dx, const float *dy,
                               const float *x, size_t n);
cudaError_t cuda_scale(cudaStream_t stream, float *x, size_t n, float by);
cudaError_t cuda_add(cudaStream_t stream, float *y, const float *x, size_t n);
cudaError_t cuda_zero_ranges(cudaStream_t stream, const struct device_ranges *ranges, float *x);

#ifdef __cplusplus
}
#endif

#endif
