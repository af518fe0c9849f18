#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* Matrix products by cuBLASLt, put on one stream. Sums are float; float factors are multiplied as floats, not
 * as TF32. Which of cuBLASLt's algorithms does a shape is decided when it is first seen and kept: the first
 * one of its own order, which is the same in every process, so that a run repeats bit for bit. With
 * DDP_CUDA_TUNE=1 in the environment the fastest of eight is taken, as measured in this process: faster by
 * some percent, and the same bits within a process only. Split sums are added in float and in order. */

struct gemm;
MUST_CHECK enum err_code gemm_open(struct gemm **out, cudaStream_t stream, struct err *e);
void gemm_close(struct gemm *g); /* NULL is fine; when the stream is idle */
size_t gemm_bytes(const struct gemm *g);

/* As device.h's. linear adds the bias and applies tanh GELU within the product where cuBLASLt can; in bf16
 * it adds the bias that is rounded to bf16. */
MUST_CHECK enum err_code gemm_product(struct gemm *g, const struct device_product *h, struct err *e);
MUST_CHECK enum err_code gemm_linear(struct gemm *g, const struct device_linear *h, struct err *e);
/* dz = dy w^T f'(z) alone, in one product. UNIMPLEMENTED: not in one, and nothing was done. */
MUST_CHECK enum err_code gemm_activation_grad(struct gemm *g, const struct device_activation_grad *h,
                                              struct err *e);

#endif
