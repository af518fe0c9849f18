#include "trainer/device/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct cpu_device {
    struct device base;
    const struct cpu_kernels *kernels;
    struct err first; /* sticks until wait */
};

/* In front of every allocation, so that free knows its size; a whole cache line keeps what follows aligned.
 */
struct cpu_header {
    size_t bytes;
    char fill[64 - sizeof(size_t)];
};

static struct cpu_device *cpu_of(struct device *d)
{
    return (struct cpu_device *)(void *)d;
}

static void cpu_close(struct device *d)
{
    free(d);
}

static enum err_code cpu_wait(struct device *d, struct err *e)
{
    struct cpu_device *c = cpu_of(d);
    if (c->first.code == ERR_OK)
        return ERR_OK;
    *e = c->first;
    c->first.code = ERR_OK;
    return e->code;
}

static enum err_code cpu_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    if (bytes > SIZE_MAX / 2)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "out of memory");
    size_t whole = sizeof(struct cpu_header) + (bytes + 63) / 64 * 64;
    struct cpu_header *h = aligned_alloc(64, whole);
    if (!h)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "out of memory");
    memset(h, 0, whole);
    h->bytes = bytes;
    d->bytes += bytes;
    *out = h + 1;
    return ERR_OK;
}

static void cpu_free(struct device *d, void *p)
{
    if (!p)
        return;
    struct cpu_header *h = (struct cpu_header *)p - 1;
    d->bytes -= h->bytes;
    free(h);
}

static void cpu_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    if (to != from)
        memcpy(to, from, bytes);
}

static void cpu_zero(struct device *d, void *to, size_t bytes)
{
    (void)d;
    memset(to, 0, bytes);
}

static void cpu_matmul(struct device *d, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                       const float *a, const float *b, float beta, float *c)
{
    struct err e = {0};
    struct err *first = &cpu_of(d)->first;
    if (cpu_gemm(trans_a, trans_b, m, n, k, a, b, beta, c, &e) && first->code == ERR_OK)
        *first = e;
}

static void cpu_bias(struct device *d, float *y, const float *b, int64_t rows, int64_t cols)
{
    cpu_of(d)->kernels->bias(y, b, rows, cols);
}

static void cpu_bias_grad(struct device *d, float *db, const float *dy, int64_t rows, int64_t cols)
{
    cpu_of(d)->kernels->bias_grad(db, dy, rows, cols);
}

static void cpu_activate(struct device *d, enum device_activation kind, float *y, const float *x, size_t n)
{
    cpu_of(d)->kernels->activate(kind, y, x, n);
}

static void cpu_activate_grad(struct device *d, enum device_activation kind, float *dx, const float *dy,
                              const float *x, size_t n)
{
    cpu_of(d)->kernels->activate_grad(kind, dx, dy, x, n);
}

static void cpu_cross_entropy(struct device *d, float *dx, const float *x, const int32_t *label, int64_t rows,
                              int64_t classes, float scale, struct device_tally *tally)
{
    cpu_of(d)->kernels->cross_entropy(dx, x, label, rows, classes, scale, tally);
}

static void cpu_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
                    float scale, struct device_tally *tally)
{
    cpu_of(d)->kernels->mse(dx, x, y, rows, cols, scale, tally);
}

static void cpu_sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    *out = cpu_of(d)->kernels->sum_squares(x, n);
}

static void cpu_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v,
                    size_t n)
{
    cpu_of(d)->kernels->sgd(h, p, g, v, n);
}

static void cpu_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                      float *v, size_t n)
{
    cpu_of(d)->kernels->adamw(h, p, g, m, v, n);
}

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .wait = cpu_wait,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .matmul = cpu_matmul,
    .bias = cpu_bias,
    .bias_grad = cpu_bias_grad,
    .activate = cpu_activate,
    .activate_grad = cpu_activate_grad,
    .cross_entropy = cpu_cross_entropy,
    .mse = cpu_mse,
    .sum_squares = cpu_sum_squares,
    .sgd = cpu_sgd,
    .adamw = cpu_adamw,
};

static const struct cpu_kernels *choose_kernels(void)
{
#ifdef DDP_X86_KERNELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return &cpu_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &cpu_kernels_avx2;
#endif
    return &cpu_kernels_base;
}

enum err_code cpu_open(struct device **out, int local_rank, int local_ranks, struct err *e)
{
    int threads = 0;
    if (cpu_pin(local_rank, local_ranks, &threads, e))
        return e->code;
    struct cpu_device *c = xcalloc(1, sizeof(*c));
    c->base = (struct device){.ops = &cpu_ops, .host = true, .threads = threads};
    c->kernels = choose_kernels();
    *out = &c->base;
    return ERR_OK;
}
