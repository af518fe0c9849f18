#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_LOSS_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_LOSS_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Losses with their gradients, and their means. */

cudaError_t cuda_cross_entropy(cudaStream_t stream, const struct cuda_workspace *w,
                               const struct device_classes *h);
cudaError_t cuda_mse(cudaStream_t stream, const struct cuda_workspace *w, float *dx, const float *x,
                     const float *y, int64_t rows, int64_t cols, float scale, struct device_tally *tally);
cudaError_t cuda_tally_mean(cudaStream_t stream, float *to, const struct device_tally *tally, double divisor);

#ifdef __cplusplus
}
#endif

#endif
