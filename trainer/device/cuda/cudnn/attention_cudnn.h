#ifndef DDP_TRAINER_DEVICE_CUDA_CUDNN_ATTENTION_CUDNN_H
#define DDP_TRAINER_DEVICE_CUDA_CUDNN_ATTENTION_CUDNN_H

#include <cuda_runtime_api.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* Attention by cuDNN. A plan is made when a shape is first seen, and kept. Our own kernels do the shapes that cuDNN
 * declines. If the plugin is built without cuDNN, attention_no_cudnn.c defines these functions instead of
 * attention_cudnn.c; they return UNAVAILABLE or UNIMPLEMENTED. */

struct attention_cudnn;

#define ATTENTION_VERSION 32
/* The version of the library that would be opened: "cuDNN 9.19.0". Needs no device. UNAVAILABLE: there is none. */
MUST_CHECK enum err_code attention_cudnn_version(char out[ATTENTION_VERSION], struct err *e);

/* most: limit of a backward pass's workspace in bytes; a single row may exceed it. UNAVAILABLE: there is no library, or
 * it does not support this GPU. */
MUST_CHECK enum err_code attention_cudnn_open(struct attention_cudnn **out, cudaStream_t stream, int64_t most,
                                              struct err *e);
void attention_cudnn_free(struct attention_cudnn *c);
const char *attention_cudnn_name(const struct attention_cudnn *c); /* "cuDNN 9.19.0" */

/* Makes sure that there is a plan for the shape; *room is the memory it needs, in bytes. UNIMPLEMENTED: cuDNN declines
 * the shape, or there is no plan and `make` is false. forward and backward need a plan, and memory of that size. */
MUST_CHECK enum err_code attention_cudnn_prepare(struct attention_cudnn *c, const struct device_attention *h,
                                                 bool backward, bool make, size_t *room, struct err *e);
/* The number of the engine that computes the shape; -1: there is no plan. */
int64_t attention_cudnn_engine(struct attention_cudnn *c, const struct device_attention *h, bool backward);
MUST_CHECK enum err_code attention_cudnn_forward(struct attention_cudnn *c, const struct device_attention *h,
                                                 void *room, struct err *e);
MUST_CHECK enum err_code attention_cudnn_backward(struct attention_cudnn *c, const struct device_attention *h,
                                                  const void *d_o, void *dqkv, void *room, struct err *e);

#endif
