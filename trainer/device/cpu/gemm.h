#ifndef DDP_TRAINER_DEVICE_CPU_GEMM_H
#define DDP_TRAINER_DEVICE_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Computes a product of floats by oneDNN; arguments as in struct device_product. */
MUST_CHECK enum err_code cpu_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                                  const float *b, float beta, float *c, struct err *e);

#endif
