#include "trainer/device/cpu/dense.h"

#include "base/mem.h"
#include "trainer/device/cpu/gemm.h"
#include "trainer/device/cpu/gemm_bf16.h"
#include "trainer/device/cpu/work.h"

/* ---- products */

static void widen_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    size_t from = (size_t)part * CPU_FLAT_PART;
    (void)thread;
    w->k->widen(w->to + from, w->from_narrow + from, flat_part_count(w->n, part));
}

static void bf16_widen(struct device *d, float *to, const uint16_t *x, size_t n)
{
    struct cpu_work w = {.to = to, .from_narrow = x, .n = n};
    work_run(d, &w, flat_parts(n), widen_part);
}

static enum err_code product_widened(struct device *d, const struct device_product *h, struct err *e)
{
    struct cpu_device *cpu = cpu_of(d);
    size_t left = (size_t)cpu_rounded(h->m * h->k, 16), right = (size_t)(h->k * h->n);
    BUG_ON(h->out != DEVICE_F32);
    float *wide = cpu_grow(cpu, &cpu->wide, (left + right) * sizeof(float));
    if (!wide)
        return ERR_OK; /* the device has the error */
    bf16_widen(d, wide, h->a, (size_t)(h->m * h->k));
    bf16_widen(d, wide + left, h->b, right);
    return cpu_gemm(h->trans_a, h->trans_b, h->m, h->n, h->k, wide, wide + left, h->beta, h->c, e);
}

void dense_biased_product(struct device *d, const struct device_product *h, const float *bias)
{
    struct err e = {0};
    if (cpu_bf16_gemm(cpu_of(d)->bf16, h, bias, &e))
        cpu_failed(cpu_of(d), &e);
}

void dense_product(struct device *d, const struct device_product *h)
{
    struct err e = {0};
    enum err_code code;
    BUG_ON(h->out != DEVICE_F32 && !d->attends_bf16);
    if (h->type == DEVICE_F32)
        code = cpu_gemm(h->trans_a, h->trans_b, h->m, h->n, h->k, h->a, h->b, h->beta, h->c, &e);
    else if (d->attends_bf16)
        code = cpu_bf16_gemm(cpu_of(d)->bf16, h, NULL, &e);
    else
        code = product_widened(d, h, &e);
    if (code)
        cpu_failed(cpu_of(d), &e);
}

static void narrow_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    size_t from = (size_t)part * CPU_FLAT_PART;
    (void)thread;
    w->k->narrow(w->narrow + from, w->x + from, flat_part_count(w->n, part));
}

void dense_narrow(struct device *d, void *bf16, const float *x, size_t n)
{
    struct cpu_work w = {.narrow = bf16, .x = x, .n = n};
    work_run(d, &w, flat_parts(n), narrow_part);
}

/* ---- bias and activation */

static void bias_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    int64_t from = cpu_part_start(w->rows, w->parts, part), to = cpu_part_start(w->rows, w->parts, part + 1);
    (void)thread;
    w->k->bias(w->to + from * w->cols, w->x, to - from, w->cols);
}

void dense_bias(struct device *d, float *y, const float *b, int64_t rows, int64_t cols)
{
    struct cpu_work w = {.to = y, .x = b, .rows = rows, .cols = cols};
    work_run(d, &w, cpu_even_parts(cpu_of(d), rows), bias_part);
}

static void column_sums_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    int64_t from = cpu_part_start(w->rows, w->parts, part), to = cpu_part_start(w->rows, w->parts, part + 1);
    (void)thread;
    if (w->type == DEVICE_BF16)
        w->k->column_sums_bf16(w->to + part * w->cols, w->from_narrow + from * w->cols, to - from, w->cols);
    else
        w->k->column_sums(w->to + part * w->cols, w->x + from * w->cols, to - from, w->cols);
}

void dense_bias_grad(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                     int64_t cols)
{
    struct cpu_work w = {.type = type, .x = dy, .from_narrow = dy, .rows = rows, .cols = cols};
    int64_t parts = cpu_parts(rows);
    w.to = cpu_scratch(cpu_of(d), (size_t)(parts * cols) * sizeof(float));
    if (!w.to)
        return;
    work_run(d, &w, parts, column_sums_part);
    w.k->fold(db, w.to, parts, cols, cols);
}

static void activate_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    size_t from = (size_t)part * CPU_FLAT_PART;
    (void)thread;
    w->k->activate(w->kind, w->to + from, w->x + from, flat_part_count(w->n, part));
}

void dense_activate(struct device *d, enum device_activation kind, float *y, const float *x, size_t n)
{
    struct cpu_work w = {.kind = kind, .to = y, .x = x, .n = n};
    work_run(d, &w, flat_parts(n), activate_part);
}

static void activate_grad_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    size_t from = (size_t)part * CPU_FLAT_PART;
    (void)thread;
    w->k->activate_grad(w->kind, w->to + from, w->y + from, w->x + from, flat_part_count(w->n, part));
}

void dense_activate_grad(struct device *d, enum device_activation kind, float *dx, const float *dy,
                         const float *x, size_t n)
{
    struct cpu_work w = {.kind = kind, .to = dx, .y = dy, .x = x, .n = n};
    work_run(d, &w, flat_parts(n), activate_grad_part);
}
