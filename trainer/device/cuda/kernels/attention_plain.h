#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_ATTENTION_PLAIN_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_ATTENTION_PLAIN_H

#include <cuda_runtime_api.h>

#include "trainer/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Launchers of our own plain attention kernels: attention_plain.cu. delta (rows,heads,context) is workspace for the
 * sums over d_o o. */

enum { ATTENTION_PLAIN_SIZE = 256 }; /* the largest head, in elements */
cudaError_t attention_plain_forward(cudaStream_t stream, const struct device_attention *h);
cudaError_t attention_plain_backward(cudaStream_t stream, const struct device_attention *h, const void *d_o,
                                     void *dqkv, float *delta);

#ifdef __cplusplus
}
#endif

#endif
