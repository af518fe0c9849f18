#ifndef DDP_TRAINER_DEVICE_CPU_GEMM_BF16_H
#define DDP_TRAINER_DEVICE_CPU_GEMM_BF16_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* Products of bf16 by oneDNN. */

/* Keeps the primitives that oneDNN has compiled, by shape. */
struct cpu_bf16;
MUST_CHECK enum err_code cpu_bf16_open(struct cpu_bf16 **out, struct err *e);
void cpu_bf16_close(struct cpu_bf16 *g); /* NULL is fine */
/* bias: added to each row before it is rounded; NULL: none. Only for a device with attends_bf16.
 * UNIMPLEMENTED: this CPU has no bf16 products. With AVX-512 but no bf16 instructions oneDNN emulates them, which takes two to
 * three times as long as cpu_gemm with widened factors. */
MUST_CHECK enum err_code cpu_bf16_gemm(struct cpu_bf16 *g, const struct device_product *h, const float *bias,
                                       struct err *e);
/* Whether this CPU has them, also with a bias and a result of bf16. */
bool cpu_bf16_works(struct cpu_bf16 *g);

#endif
