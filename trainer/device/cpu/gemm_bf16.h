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
/* bias: added to each row before the row is rounded; NULL: none. Call it only if the device has attends_bf16: on a CPU with
 * AVX-512 but without bf16 instructions, oneDNN emulates them, and that is two to three times as slow as cpu_gemm of widened
 * factors. UNIMPLEMENTED: oneDNN has no bf16 products for this CPU. */
MUST_CHECK enum err_code cpu_bf16_gemm(struct cpu_bf16 *g, const struct device_product *h, const float *bias,
                                       struct err *e);
/* Whether this CPU has them, also with a bias and a result of bf16. */
bool cpu_bf16_works(struct cpu_bf16 *g);

#endif
