#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_LAYER_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_LAYER_H

#include "trainer/device/cuda/gemm/gemm.h"
#include "trainer/device/cuda/kernels/workspace.h"

/* Operations of device.h that are either one product with an epilogue (cuBLASLt adds the bias and applies the
 * activation), or a product followed by kernels. One product is used where cuBLASLt can do it, unless it was slower
 * when algorithms were chosen. For example, an A100 computes GELU faster in a kernel. */

/* In bf16, a product with an epilogue adds the bias rounded to bf16. */
MUST_CHECK enum err_code gemm_linear(struct gemm *g, const struct device_linear *h, struct err *e);
/* UNIMPLEMENTED: one product cannot do this; nothing was started. */
MUST_CHECK enum err_code gemm_activation_grad(struct gemm *g, const struct cuda_workspace *work,
                                              const struct device_activation_grad *h, struct err *e);
/* As above. The sums of dbias are made in the workspace. */
MUST_CHECK enum err_code gemm_weight_grad(struct gemm *g, const struct cuda_workspace *work,
                                          const struct device_weight_grad *h, struct err *e);

#endif
