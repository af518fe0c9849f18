#ifndef DDP_TRAINER_DEVICE_CUDA_ATTENTION_H
#define DDP_TRAINER_DEVICE_CUDA_ATTENTION_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "trainer/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Causal attention on a GPU, in three ways. cuDNN's kernels take bf16 without dropout, when the library is
 * there and has one for the shape. Our own on the tensor cores take bf16 with heads of 8 to 128 in steps of
 * 8. The plain ones take what is left: float, and any head up to 256. Each gives the same bits every time;
 * which one is taken depends on the shape, the type, dropout and what is installed alone. */

struct attention; /* of one stream; used by its device's thread only */

/* "cuDNN 9.19.0", which attention_open would take; "": none. Needs no device. */
void attention_version(char out[32]);
/* Opens cuDNN when there is one; the environment's DDP_CUDNN=0 forbids it, and DDP_CUDNN_WORKSPACE_MB bounds
 * a backward pass's workspace (2048 without it). INVALID_ARGUMENT: that is no number of megabytes. */
MUST_CHECK enum err_code attention_open(struct attention **out, cudaStream_t stream, struct err *e);
void attention_free(struct attention *a); /* when the stream is idle; NULL is fine */

/* Prepares for a shape of which that many rows are the most: memory, and cuDNN's plans, which take half a
 * second. INVALID_ARGUMENT: heads above 256. */
MUST_CHECK enum err_code attention_reserve(struct attention *a, const struct device_sizes *sizes,
                                           struct err *e);
size_t attention_bytes(const struct attention *a); /* memory held now */

/* Of device.h's operations. A larger shape than was reserved, or another: memory is found when it comes. */
MUST_CHECK enum err_code attention_forward(struct attention *a, const struct device_attention *h,
                                           struct err *e);
MUST_CHECK enum err_code attention_backward(struct attention *a, const struct device_attention *h,
                                            const void *d_o, void *dqkv, struct err *e);

/* For people: "cuDNN 9.19.0", or why there is none. */
const char *attention_library(const struct attention *a);
/* For reports and tests: "cuDNN 9.19.0", "own" or "plain", as the last call went; "" before it. */
const char *attention_path(const struct attention *a);

#ifdef __cplusplus
}
#endif

#endif
