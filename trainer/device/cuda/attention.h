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

/* Causal attention on a GPU by one of three sets of kernels:
 * - cuDNN's: bf16 without dropout, if the library is installed and has a kernel for the shape;
 * - our own on the tensor cores: bf16, head sizes from 8 to 128 in steps of 8;
 * - our own plain kernels: everything else, which is float and any head size up to 256.
 * Each gives the same bits every time. The choice depends only on the shape, the type, dropout, the installed library
 * and the memory that was free when the shape was reserved. */

struct attention; /* bound to one stream; used by the thread of its device only */

/* The library that attention_open would use, as "cuDNN 9.19.0"; "" if there is none. Needs no device. */
void attention_version(char out[32]);
/* Opens cuDNN if it is installed, unless the environment says DDP_CUDNN=0. DDP_CUDNN_WORKSPACE_MB limits the workspace
 * of a backward pass (default 2048). INVALID_ARGUMENT: DDP_CUDNN_WORKSPACE_MB is not a valid number. */
MUST_CHECK enum err_code attention_open(struct attention **out, cudaStream_t stream, struct err *e);
void attention_free(struct attention *a); /* call it when the stream is idle; NULL is fine */

/* Prepares for a shape with at most sizes->n.rows rows: allocates memory, and makes cuDNN's plans in a thread, which takes
 * about a second. The calls below wait for it. INVALID_ARGUMENT: the head size is above 256. */
MUST_CHECK enum err_code attention_reserve(struct attention *a, const struct device_sizes *sizes,
                                           struct err *e);
size_t attention_bytes(const struct attention *a); /* GPU memory held now */

/* Waits for the plans, and allocates their workspace. Call it before a recording of the stream begins: during one, nothing
 * can be loaded or allocated. */
void attention_settle(struct attention *a);

/* Operations of device.h. For a shape that was not reserved, memory is allocated at the first call. */
MUST_CHECK enum err_code attention_forward(struct attention *a, const struct device_attention *h,
                                           struct err *e);
MUST_CHECK enum err_code attention_backward(struct attention *a, const struct device_attention *h,
                                            const void *d_o, void *dqkv, struct err *e);

/* For people: "cuDNN 9.19.0", or why cuDNN is not used. */
const char *attention_library(const struct attention *a);
/* How a training of the shape that was reserved last computes: for each pass the kernels, cuDNN's engine, and why
 * cuDNN's are not used. Empty texts before attention_reserve. */
void attention_tell(struct attention *a, struct device_attention_text *out);
/* For reports and tests: the kernels of the last call, "cuDNN 9.19.0", "own" or "plain"; "" before the first call. */
const char *attention_path(const struct attention *a);

#ifdef __cplusplus
}
#endif

#endif
