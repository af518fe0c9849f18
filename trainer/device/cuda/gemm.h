#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* Matrix products by cuBLASLt on one stream. Sums are float. Float factors are multiplied as floats, not as TF32.
 *
 * The algorithm for a shape is chosen when the shape is first seen, and kept: the first in cuBLASLt's own order, which
 * is the same in every process, so that a run repeats bit for bit. With DDP_CUDA_TUNE=1 in the environment, up to eight
 * algorithms are timed and the fastest is kept. That is some percent faster, but the bits are then the same only within
 * one process. If an algorithm splits a sum, the parts are added in float and in a fixed order. */

struct gemm;
MUST_CHECK enum err_code gemm_open(struct gemm **out, cudaStream_t stream, struct err *e);
void gemm_close(struct gemm *g);         /* call it when the stream is idle; NULL is fine */
size_t gemm_bytes(const struct gemm *g); /* GPU memory held now */

/* Operations of device.h. gemm_linear adds the bias and applies tanh GELU inside the product if cuBLASLt can; in bf16
 * it then adds the bias rounded to bf16. */
MUST_CHECK enum err_code gemm_product(struct gemm *g, const struct device_product *h, struct err *e);
MUST_CHECK enum err_code gemm_linear(struct gemm *g, const struct device_linear *h, struct err *e);
/* Computes only dz = dy w^T f'(z), in one product. UNIMPLEMENTED: one product cannot do it; nothing was started. */
MUST_CHECK enum err_code gemm_activation_grad(struct gemm *g, const struct device_activation_grad *h,
                                              struct err *e);

#endif
