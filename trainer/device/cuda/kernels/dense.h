#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_DENSE_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_DENSE_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Biases and activations of a linear layer, and their gradients. Arrays are (rows, cols). */

/* db += the sums over the rows of dy. */
cudaError_t cuda_bias_grad(cudaStream_t stream, const struct cuda_workspace *w, enum device_type type,
                           float *db, const void *dy, int64_t rows, int64_t cols);
/* z += bias unless bias is NULL, and a = f(z) unless a is NULL. linear calls it after a product that could not do so
 * itself. */
cudaError_t cuda_bias_activate(cudaStream_t stream, enum device_activation kind, enum device_type type,
                               void *a, void *z, const float *bias, int64_t rows, int64_t cols);
/* dz = da f'(z), a = f(z) unless a is NULL, dbias += the sums over the rows of dz unless dbias is NULL. */
cudaError_t cuda_bias_activate_grad(cudaStream_t stream, const struct cuda_workspace *w,
                                    enum device_activation kind, enum device_type type, void *dz, void *a,
                                    float *dbias, const void *da, const void *z, int64_t rows, int64_t cols);

#ifdef __cplusplus
}
#endif

#endif
