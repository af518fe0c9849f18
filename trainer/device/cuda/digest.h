#ifndef DDP_TRAINER_DEVICE_CUDA_DIGEST_H
#define DDP_TRAINER_DEVICE_CUDA_DIGEST_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* device_ops.digest: the sum of each block of DIGEST_BLOCK words (base/digest.h). */
void cuda_digest(cudaStream_t stream, uint64_t *sums, const float *x, size_t n);

#ifdef __cplusplus
}
#endif

#endif
