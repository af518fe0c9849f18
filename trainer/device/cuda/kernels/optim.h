#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_OPTIM_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_OPTIM_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sum of squares of a gradient, the scale that clips it, and the steps of the optimizers: as in device.h. */

cudaError_t cuda_sum_squares(cudaStream_t stream, const struct cuda_workspace *w, const float *x, size_t n,
                             double *out);
cudaError_t cuda_clip_scale(cudaStream_t stream, float *scale, const double *squares, double clip);
cudaError_t cuda_sgd(cudaStream_t stream, const struct device_sgd *h, float *p, const float *g, float *v,
                     size_t n);
cudaError_t cuda_adamw(cudaStream_t stream, const struct device_adamw *h, float *p, const float *g, float *m,
                       float *v, size_t n);
cudaError_t cuda_adamw_ranges(cudaStream_t stream, const struct device_adamw *h,
                              const struct device_ranges *ranges, float *p, const float *g, float *m,
                              float *v, void *narrowed);

#ifdef __cplusplus
}
#endif

#endif
