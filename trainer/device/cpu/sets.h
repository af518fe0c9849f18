#ifndef DDP_TRAINER_DEVICE_CPU_SETS_H
#define DDP_TRAINER_DEVICE_CPU_SETS_H

#include "base/isa.h"
#include "trainer/device/device.h"

/* The functions that are compiled once for each instruction set (kernels.c, layers.c, muon.c,
 * attention.c), and the choice of a set that this CPU supports. Each function works on one part of an operation. */

struct cpu_kernels {
    void (*bias)(float *y, const float *b, int64_t rows, int64_t cols);
    void (*column_sums)(float *sums, const float *dy, int64_t rows, int64_t cols);
    void (*column_sums_bf16)(float *sums, const uint16_t *dy, int64_t rows, int64_t cols);
    /* to[i] += parts[i] + parts[stride + i] + ...: `count` parts, added in order */
    void (*fold)(float *to, const float *parts, int64_t count, int64_t stride, int64_t n);
    void (*activate)(enum device_activation kind, float *y, const float *x, size_t n);
    void (*activate_grad)(enum device_activation kind, float *dx, const float *dy, const float *x, size_t n);
    void (*narrow)(uint16_t *to, const float *x, size_t n);
    void (*widen)(float *to, const uint16_t *x, size_t n);
    /* rows: the tally of each row */
    void (*cross_entropy)(const struct device_classes *h, int64_t from, int64_t to,
                          struct device_tally *rows);
    void (*mse)(float *dx, const float *x, const float *y, int64_t rows, int64_t cols, float scale,
                struct device_tally *tallies);
    double (*sum_squares)(const float *x, size_t n);
    void (*scale)(float *x, size_t n, float by);
    /* narrowed: p after the update, as `narrow` rounds it; NULL: not written */
    void (*sgd)(const struct device_sgd *h, float *p, const float *g, float *v, uint16_t *narrowed, size_t n);
    void (*adamw)(const struct device_adamw *h, float *p, const float *g, float *m, float *v,
                  uint16_t *narrowed, size_t n);
};

/* Operations on tokens from..to-1. sums: column sums of the part, in whole vectors of 16, `stride` apart. */
struct cpu_layers {
    void (*embed)(const struct device_embedding *h, const float *wte, const float *wpe, float *x,
                  int64_t from, int64_t to);
    void (*embed_mask)(const struct device_embedding *h, float *dx, int64_t from, int64_t to);
    void (*embed_grad)(const struct device_embedding *h, float *dwte, float *dwpe, const float *dx,
                       int64_t from, int64_t to); /* from..to-1 are columns */
    void (*norm)(const struct device_norm *h, int64_t from, int64_t to);
    void (*norm_grad)(const struct device_norm_grad *h, int64_t from, int64_t to, float *sums,
                      int64_t stride);
    void (*bias_activate)(enum device_activation kind, enum device_type type, void *a, float *z,
                          const float *bias, int64_t rows, int64_t cols);
    void (*bias_activate_grad)(enum device_activation kind, enum device_type type, void *dz, void *a,
                               float *sums, const float *da, const float *z, int64_t rows, int64_t cols);
};

#define CPU_ATTENTION_STRIP 64 /* queries */
struct cpu_attention {
    /* The size of the scratch memory, in floats; size: elements of a head. */
    int64_t (*floats)(int64_t context, int64_t size);
    /* One head of one row. scratch: 64-byte aligned. */
    void (*forward)(const struct device_attention *h, int64_t row, int64_t head, float *scratch);
    void (*backward)(const struct device_attention *h, int64_t row, int64_t head, const void *d_o, void *dqkv,
                     float *scratch);
};
static inline int64_t cpu_rounded(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

struct cpu_muon; /* muon.h */
struct cpu_set {
    const char *name;
    enum isa isa; /* the least that it needs */
    const struct cpu_kernels *kernels;
    const struct cpu_layers *layers;
    const struct cpu_attention *attention;
    const struct cpu_muon *muon;
};
/* What `precision: bf16` uses on a CPU with ISA_AVX512_BF16 or more: attention with factors in bf16, and layers with fused
 * multiply-adds. NULL if this build has none. */
struct cpu_half {
    const struct cpu_attention *attention;
    const struct cpu_layers *layers;
};
const struct cpu_half *cpu_half(void);
/* Returns the sets that this build contains and this CPU supports, the best one last. Sets *count, which is
 * at least 1. */
const struct cpu_set *cpu_sets(int *count);

#endif
