#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_WORKSPACE_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_WORKSPACE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory for the partial sums of one stream's kernels, at a 256-byte boundary. cuda_workspace_bytes(NULL) is enough
 * for all kernels but cuda_embed_grad, which needs cuda_workspace_bytes of its sizes (n and vocab) and returns
 * cudaErrorInvalidValue with less. */
struct cuda_workspace {
    void *memory;
    size_t bytes;
    int multiprocessors; /* of the GPU: how many blocks run at once. Some sums depend on it */
};
size_t cuda_workspace_bytes(const struct device_sizes *sizes);

#ifdef __cplusplus
}
#endif

#endif
