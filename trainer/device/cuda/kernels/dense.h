#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_DENSE_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_DENSE_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Biases and activations of a linear layer, and their gradients. Arrays are (rows, cols). */

cudaError_t cuda_bias_grad(cudaStream_t stream, const struct cuda_workspace *w, enum device_type type,
                           float *db, const void *dy, int64_t rows, int64_t cols);
/* z += bias, both of a layer's (rows,cols) product, and a = f(z) unless a is NULL: what linear does behind
 * its product where that cannot. bias NULL: 0. */
cudaError_t cuda_bias_activate(cudaStream_t stream, enum device_activation kind, enum device_type type,
                               void *a, void *z, const float *bias, int64_t rows, int64_t cols);
cudaError_t cuda_bias_activate_grad(cudaStream_t stream, const struct cuda_workspace *w,
                                    enum device_activation kind, enum device_type type, void *dz, void *a,
                                    float *dbias, const void *da, const void *z, int64_t rows, int64_t cols);

#ifdef __cplusplus
}
#endif

#endif
