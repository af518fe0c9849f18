#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_EMBED_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_EMBED_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Token and position embeddings, and their gradients. */

cudaError_t cuda_embed(cudaStream_t stream, const struct device_embedding *h, const float *wte,
                       const float *wpe, float *x);
cudaError_t cuda_embed_grad(cudaStream_t stream, const struct cuda_workspace *w,
                            const struct device_embedding *h, float *dwte, float *dwpe, void *dx);

#ifdef __cplusplus
}
#endif

#endif
