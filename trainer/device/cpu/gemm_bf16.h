#ifndef DDP_TRAINER_DEVICE_CPU_GEMM_BF16_H
#define DDP_TRAINER_DEVICE_CPU_GEMM_BF16_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* oneDNN's product of bf16, as device_product; c is float. */

/* Keeps what oneDNN compiled for the shapes it has seen. */
struct cpu_bf16;
MUST_CHECK enum err_code cpu_bf16_open(struct cpu_bf16 **out, struct err *e);
void cpu_bf16_close(struct cpu_bf16 *g); /* NULL is fine */
/* UNIMPLEMENTED: this CPU has no bf16 products, widen and use cpu_gemm. */
MUST_CHECK enum err_code cpu_bf16_gemm(struct cpu_bf16 *g, bool trans_a, bool trans_b, int64_t m, int64_t n,
                                       int64_t k, const uint16_t *a, const uint16_t *b, float beta, float *c,
                                       struct err *e);

#endif
