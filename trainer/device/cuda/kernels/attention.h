#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_ATTENTION_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_ATTENTION_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "trainer/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Launchers of our own attention kernels on the tensor cores: attention.cu. delta (rows,heads,context) is workspace for
 * the sums over d_o o. */

enum { ATTENTION_MMA_SIZE = 128 }; /* the largest head, in elements */
bool attention_mma_takes(const struct device_attention *h);
cudaError_t attention_mma_forward(cudaStream_t stream, const struct device_attention *h);
cudaError_t attention_mma_backward(cudaStream_t stream, const struct device_attention *h, const void *d_o,
                                   void *dqkv, float *delta);

#ifdef __cplusplus
}
#endif

#endif
