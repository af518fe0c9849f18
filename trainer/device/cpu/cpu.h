#ifndef DDP_TRAINER_DEVICE_CPU_CPU_H
#define DDP_TRAINER_DEVICE_CPU_CPU_H

#include "trainer/device/device.h"

/* The CPU device: matrix products by oneDNN (gemm.c alone sees it), everything else by kernels.c, which is
 * compiled once per instruction set and chosen at open. */
MUST_CHECK enum err_code cpu_open(struct device **out, int local_rank, int local_ranks, struct err *e);

/* pin.c: keeps this process, and all threads it starts later, on its share of the cores; *threads of them. */
MUST_CHECK enum err_code cpu_pin(int local_rank, int local_ranks, int *threads, struct err *e);

/* gemm.c: as device_ops.matmul. */
MUST_CHECK enum err_code cpu_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                                  const float *b, float beta, float *c, struct err *e);

struct cpu_kernels {
    void (*bias)(float *y, const float *b, int64_t rows, int64_t cols);
    void (*bias_grad)(float *db, const float *dy, int64_t rows, int64_t cols);
    void (*activate)(enum device_activation kind, float *y, const float *x, size_t n);
    void (*activate_grad)(enum device_activation kind, float *dx, const float *dy, const float *x, size_t n);
    void (*cross_entropy)(float *dx, const float *x, const int32_t *label, int64_t rows, int64_t classes,
                          float scale, struct device_tally *tally);
    void (*mse)(float *dx, const float *x, const float *y, int64_t rows, int64_t cols, float scale,
                struct device_tally *tally);
    double (*sum_squares)(const float *x, size_t n);
    void (*sgd)(const struct device_sgd *h, float *p, const float *g, float *v, size_t n);
    void (*adamw)(const struct device_adamw *h, float *p, const float *g, float *m, float *v, size_t n);
};
extern const struct cpu_kernels cpu_kernels_base;
extern const struct cpu_kernels cpu_kernels_avx2;
extern const struct cpu_kernels cpu_kernels_avx512;

#endif
