#ifndef DDP_TRAINER_DEVICE_CPU_CPU_H
#define DDP_TRAINER_DEVICE_CPU_CPU_H

#include "trainer/device/device.h"

/* The CPU device. Matrix products are oneDNN's (gemm.c, gemm_bf16.c alone see it); everything else is
 * compiled once per instruction set and chosen at open: kernels.c, layers.c, attention.c. Those work on
 * parts; dense.c and sequence.c cut operations into parts and hand them to the threads. How an operation is
 * cut does not depend on how many threads there are, and sums over parts are folded in order: so neither do
 * its bits. */
MUST_CHECK enum err_code cpu_open(struct device **out, int local_rank, int local_ranks, int threads,
                                  struct err *e);

/* pin.c: keeps this process, and all threads it starts later, on its share of the cores; *threads of them. */
MUST_CHECK enum err_code cpu_pin(int local_rank, int local_ranks, int *threads, struct err *e);

/* ---- threads.c */
typedef void (*cpu_part_fn)(void *arg, int64_t part, int thread);
struct cpu_threads {
    int count;
    void (*parallel)(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
    int (*thread_num)(void);
    int (*thread_count)(void);
};
void cpu_threads_open(struct cpu_threads *t, int count);
/* fn for each part; thread is below t->count. Returns when all are done. */
void cpu_threads_run(const struct cpu_threads *t, int64_t parts, cpu_part_fn fn, void *arg);

/* ---- gemm.c, gemm_bf16.c: as device_product; c is float */
MUST_CHECK enum err_code cpu_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                                  const float *b, float beta, float *c, struct err *e);
/* Keeps what oneDNN compiled for the shapes it has seen. */
struct cpu_bf16;
MUST_CHECK enum err_code cpu_bf16_open(struct cpu_bf16 **out, struct err *e);
void cpu_bf16_close(struct cpu_bf16 *g); /* NULL is fine */
/* UNIMPLEMENTED: this CPU has no bf16 products, widen and use cpu_gemm. */
MUST_CHECK enum err_code cpu_bf16_gemm(struct cpu_bf16 *g, bool trans_a, bool trans_b, int64_t m, int64_t n,
                                       int64_t k, const uint16_t *a, const uint16_t *b, float beta, float *c,
                                       struct err *e);

/* ---- per instruction set */
struct cpu_kernels {
    void (*bias)(float *y, const float *b, int64_t rows, int64_t cols);
    void (*column_sums)(float *sums, const float *dy, int64_t rows, int64_t cols);
    /* to[i] += parts[i] + parts[stride + i] + ...: count of them, in order */
    void (*fold)(float *to, const float *parts, int64_t count, int64_t stride, int64_t n);
    void (*activate)(enum device_activation kind, float *y, const float *x, size_t n);
    void (*activate_grad)(enum device_activation kind, float *dx, const float *dy, const float *x, size_t n);
    void (*narrow)(uint16_t *to, const float *x, size_t n);
    void (*widen)(float *to, const uint16_t *x, size_t n);
    void (*cross_entropy)(const struct device_classes *h, int64_t from, int64_t to,
                          struct device_tally *tally);
    void (*mse)(float *dx, const float *x, const float *y, int64_t rows, int64_t cols, float scale,
                struct device_tally *tally);
    double (*sum_squares)(const float *x, size_t n);
    void (*scale)(float *x, size_t n, float by);
    void (*sgd)(const struct device_sgd *h, float *p, const float *g, float *v, size_t n);
    void (*adamw)(const struct device_adamw *h, float *p, const float *g, float *m, float *v, size_t n);
};

/* Tokens from..to-1. sums: column sums of the part, whole vectors of 16, `stride` apart. */
struct cpu_layers {
    void (*embed)(const struct device_embedding *h, const float *wte, const float *wpe, float *x,
                  int64_t from, int64_t to);
    void (*embed_mask)(const struct device_embedding *h, float *dx, int64_t from, int64_t to);
    void (*embed_grad)(const struct device_embedding *h, float *dwte, float *dwpe, const float *dx,
                       int64_t from, int64_t to); /* columns */
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
    /* One head of one row; scratch: cpu_attention_floats, 64-byte aligned */
    void (*forward)(const struct device_attention *h, int64_t row, int64_t head, float *scratch);
    void (*backward)(const struct device_attention *h, int64_t row, int64_t head, const float *d_o,
                     float *dqkv, float *scratch);
};
static inline int64_t cpu_rounded(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}
/* size: of a head. See attention.c for what is in it. */
static inline int64_t cpu_attention_floats(int64_t context, int64_t size)
{
    int64_t wide = cpu_rounded(size, 16),
            rows = cpu_rounded(context, CPU_ATTENTION_STRIP) + CPU_ATTENTION_STRIP;
    return rows * wide * 8 + wide * CPU_ATTENTION_STRIP + 2 * CPU_ATTENTION_STRIP * (rows + 16);
}

struct cpu_set {
    const char *name;
    const struct cpu_kernels *kernels;
    const struct cpu_layers *layers;
    const struct cpu_attention *attention;
};
/* sets.c: what this build has and this CPU can do, the best last; *count of them, at least one. */
const struct cpu_set *cpu_sets(int *count);

/* ---- the device */
struct cpu_room {
    void *memory;
    size_t bytes;
};
struct cpu_device {
    struct device base;
    struct cpu_set set;
    struct cpu_threads threads;
    struct cpu_bf16 *bf16;
    struct err first;        /* sticks until wait */
    struct cpu_room scratch; /* of one operation; reserve makes it beforehand, else it grows */
    struct cpu_room wide;    /* both factors of a bf16 product as floats, where the CPU has none */
};
static inline struct cpu_device *cpu_of(struct device *d)
{
    return (struct cpu_device *)(void *)d;
}
/* At least that much, 64-byte aligned; what was in it is lost. NULL when there is no memory: that is then the
 * device's error. */
void *cpu_grow(struct cpu_device *c, struct cpu_room *room, size_t bytes);
static inline void *cpu_scratch(struct cpu_device *c, size_t bytes)
{
    return cpu_grow(c, &c->scratch, bytes);
}
void cpu_failed(struct cpu_device *c, const struct err *e);

/* Parts of n tokens or rows: as many whatever the number of threads, and few, since each may have column sums
 * of its own. */
static inline int64_t cpu_parts(int64_t n)
{
    return n > 1024 ? 32 : (n + 31) / 32;
}
static inline int64_t cpu_part_start(int64_t n, int64_t parts, int64_t part)
{
    return n * part / parts;
}

/* dense.c: operations on matrices and flat arrays. What is of the kept type is float: a CPU keeps nothing
 * else. */
void dense_product(struct device *d, const struct device_product *h);
void dense_narrow(struct device *d, void *bf16, const float *x, size_t n);
void dense_bias(struct device *d, float *y, const float *b, int64_t rows, int64_t cols);
void dense_bias_grad(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                     int64_t cols);
void dense_activate(struct device *d, enum device_activation kind, float *y, const float *x, size_t n);
void dense_activate_grad(struct device *d, enum device_activation kind, float *dx, const float *dy,
                         const float *x, size_t n);
void dense_cross_entropy(struct device *d, const struct device_classes *h);
void dense_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
               float scale, struct device_tally *tally);
void dense_tally_mean(struct device *d, float *to, const struct device_tally *tally, double divisor);
void dense_sum_squares(struct device *d, const float *x, size_t n, double *out);
void dense_clip_scale(struct device *d, float *scale, const double *squares, double clip);
void dense_scale(struct device *d, float *x, size_t n, float by);
void dense_add(struct device *d, float *y, const float *x, size_t n);
void dense_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n);
void dense_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m, float *v,
                 size_t n);

/* sequence.c: operations on tokens */
void sequence_linear(struct device *d, const struct device_linear *h);
void sequence_bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                                 enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                                 const void *z, int64_t rows, int64_t cols);
void sequence_embed(struct device *d, const struct device_embedding *h, const float *wte, const float *wpe,
                    float *x);
void sequence_embed_grad(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                         float *dx);
void sequence_norm(struct device *d, const struct device_norm *h);
void sequence_norm_grad(struct device *d, const struct device_norm_grad *h);
void sequence_attention(struct device *d, const struct device_attention *h);
void sequence_attention_grad(struct device *d, const struct device_attention *h, const void *d_o, void *dqkv);
enum err_code sequence_reserve(struct device *d, const struct device_sizes *sizes, struct err *e);

#endif
