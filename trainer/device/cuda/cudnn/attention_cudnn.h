#ifndef DDP_TRAINER_DEVICE_CUDA_CUDNN_ATTENTION_CUDNN_H
#define DDP_TRAINER_DEVICE_CUDA_CUDNN_ATTENTION_CUDNN_H

#include <cuda_runtime_api.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* cuDNN's attention: plans by shape, made when a shape is first seen. What it declines, our own kernels do.
 * Where the plugin is built without cuDNN, attention_no_cudnn.c says so instead. */

struct attention_cudnn;

#define ATTENTION_VERSION 32
/* Of the library that would be opened, without a device: "cuDNN 9.19.0". UNAVAILABLE: there is none. */
MUST_CHECK enum err_code attention_cudnn_version(char out[ATTENTION_VERSION], struct err *e);

/* most: bytes of workspace that a backward pass may want, as far as one row goes with them. UNAVAILABLE: no
 * library, or none for this GPU. */
MUST_CHECK enum err_code attention_cudnn_open(struct attention_cudnn **out, cudaStream_t stream, int64_t most,
                                              struct err *e);
void attention_cudnn_free(struct attention_cudnn *c);
const char *attention_cudnn_name(const struct attention_cudnn *c); /* its version */

/* Has a plan for the shape from now on, which needs that much room. UNIMPLEMENTED: declined, or not there and
 * not to be made. */
MUST_CHECK enum err_code attention_cudnn_prepare(struct attention_cudnn *c, const struct device_attention *h,
                                                 bool backward, bool make, size_t *room, struct err *e);
MUST_CHECK enum err_code attention_cudnn_forward(struct attention_cudnn *c, const struct device_attention *h,
                                                 void *room, struct err *e);
MUST_CHECK enum err_code attention_cudnn_backward(struct attention_cudnn *c, const struct device_attention *h,
                                                  const void *d_o, void *dqkv, void *room, struct err *e);

#endif
