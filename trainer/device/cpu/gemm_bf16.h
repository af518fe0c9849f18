#ifndef DDP_TRAINER_DEVICE_CPU_GEMM_BF16_H
#define DDP_TRAINER_DEVICE_CPU_GEMM_BF16_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Products of bf16 by oneDNN; arguments as in struct device_product. c is float. */

/* Keeps the primitives that oneDNN has compiled, by shape. */
struct cpu_bf16;
MUST_CHECK enum err_code cpu_bf16_open(struct cpu_bf16 **out, struct err *e);
void cpu_bf16_close(struct cpu_bf16 *g); /* NULL is fine */
/* UNIMPLEMENTED: this CPU has no bf16 products; the caller widens the factors and uses cpu_gemm. */
MUST_CHECK enum err_code cpu_bf16_gemm(struct cpu_bf16 *g, bool trans_a, bool trans_b, int64_t m, int64_t n,
                                       int64_t k, const uint16_t *a, const uint16_t *b, float beta, float *c,
                                       struct err *e);

#endif
