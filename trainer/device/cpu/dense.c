/* Operations on matrices and flat arrays, cut into parts for the threads. */
#include "trainer/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

#define PIECE ((size_t)1 << 16) /* floats of a flat array */

static int64_t flat_parts(size_t n)
{
    return (int64_t)((n + PIECE - 1) / PIECE);
}
static size_t flat_part_count(size_t n, int64_t part)
{
    size_t from = (size_t)part * PIECE;
    return n - from < PIECE ? n - from : PIECE;
}

/* What the parts of any of these see. */
struct work {
    const struct cpu_kernels *k;
    enum device_activation kind;
    enum device_type type;
    const void *h;
    const float *x, *y;
    float *to, *m, *v;
    uint16_t *narrow;
    const uint16_t *from_narrow;
    int64_t rows, cols, parts;
    size_t n;
    float scale;
    double *sums;
    struct device_tally *tallies;
};

static void dense_run(struct device *d, struct work *w, int64_t parts, cpu_part_fn fn)
{
    w->k = cpu_of(d)->set.kernels;
    w->parts = parts;
    cpu_threads_run(&cpu_of(d)->threads, parts, fn, w);
}

/* ---- products */

static void widen_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    size_t from = (size_t)part * PIECE;
    (void)thread;
    w->k->widen(w->to + from, w->from_narrow + from, flat_part_count(w->n, part));
}

static void bf16_widen(struct device *d, float *to, const uint16_t *x, size_t n)
{
    struct work w = {.to = to, .from_narrow = x, .n = n};
    dense_run(d, &w, flat_parts(n), widen_part);
}

static enum err_code product_widened(struct device *d, const struct device_product *h, struct err *e)
{
    struct cpu_device *cpu = cpu_of(d);
    size_t left = (size_t)cpu_rounded(h->m * h->k, 16), right = (size_t)(h->k * h->n);
    float *wide = cpu_grow(cpu, &cpu->wide, (left + right) * sizeof(float));
    if (!wide)
        return ERR_OK; /* the device has the error */
    bf16_widen(d, wide, h->a, (size_t)(h->m * h->k));
    bf16_widen(d, wide + left, h->b, right);
    return cpu_gemm(h->trans_a, h->trans_b, h->m, h->n, h->k, wide, wide + left, h->beta, h->c, e);
}

void dense_product(struct device *d, const struct device_product *h)
{
    struct err e = {0};
    enum err_code code;
    BUG_ON(h->out != DEVICE_F32);
    if (h->type == DEVICE_F32)
        code = cpu_gemm(h->trans_a, h->trans_b, h->m, h->n, h->k, h->a, h->b, h->beta, h->c, &e);
    else
        code = cpu_bf16_gemm(cpu_of(d)->bf16, h->trans_a, h->trans_b, h->m, h->n, h->k, h->a, h->b, h->beta,
                             h->c, &e);
    if (code == ERR_UNIMPLEMENTED && h->type == DEVICE_BF16)
        code = product_widened(d, h, &e);
    if (code)
        cpu_failed(cpu_of(d), &e);
}

static void narrow_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    size_t from = (size_t)part * PIECE;
    (void)thread;
    w->k->narrow(w->narrow + from, w->x + from, flat_part_count(w->n, part));
}

void dense_narrow(struct device *d, void *bf16, const float *x, size_t n)
{
    struct work w = {.narrow = bf16, .x = x, .n = n};
    dense_run(d, &w, flat_parts(n), narrow_part);
}

/* ---- bias and activation */

static void bias_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from = cpu_part_start(w->rows, w->parts, part), to = cpu_part_start(w->rows, w->parts, part + 1);
    (void)thread;
    w->k->bias(w->to + from * w->cols, w->x, to - from, w->cols);
}

void dense_bias(struct device *d, float *y, const float *b, int64_t rows, int64_t cols)
{
    struct work w = {.to = y, .x = b, .rows = rows, .cols = cols};
    dense_run(d, &w, cpu_parts(rows), bias_part);
}

static void column_sums_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from = cpu_part_start(w->rows, w->parts, part), to = cpu_part_start(w->rows, w->parts, part + 1);
    (void)thread;
    w->k->column_sums(w->to + part * w->cols, w->x + from * w->cols, to - from, w->cols);
}

void dense_bias_grad(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                     int64_t cols)
{
    struct work w = {.x = dy, .rows = rows, .cols = cols};
    int64_t parts = cpu_parts(rows);
    BUG_ON(type != DEVICE_F32);
    w.to = cpu_scratch(cpu_of(d), (size_t)(parts * cols) * sizeof(float));
    if (!w.to)
        return;
    dense_run(d, &w, parts, column_sums_part);
    w.k->fold(db, w.to, parts, cols, cols);
}

static void activate_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    size_t from = (size_t)part * PIECE;
    (void)thread;
    w->k->activate(w->kind, w->to + from, w->x + from, flat_part_count(w->n, part));
}

void dense_activate(struct device *d, enum device_activation kind, float *y, const float *x, size_t n)
{
    struct work w = {.kind = kind, .to = y, .x = x, .n = n};
    dense_run(d, &w, flat_parts(n), activate_part);
}

static void activate_grad_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    size_t from = (size_t)part * PIECE;
    (void)thread;
    w->k->activate_grad(w->kind, w->to + from, w->y + from, w->x + from, flat_part_count(w->n, part));
}

void dense_activate_grad(struct device *d, enum device_activation kind, float *dx, const float *dy,
                         const float *x, size_t n)
{
    struct work w = {.kind = kind, .to = dx, .y = dy, .x = x, .n = n};
    dense_run(d, &w, flat_parts(n), activate_grad_part);
}

/* ---- losses */

static void cross_entropy_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    int64_t from = cpu_part_start(w->rows, w->parts, part), to = cpu_part_start(w->rows, w->parts, part + 1);
    (void)thread;
    w->tallies[part] = (struct device_tally){0};
    w->k->cross_entropy(w->h, from, to, &w->tallies[part]);
}

void dense_cross_entropy(struct device *d, const struct device_classes *h)
{
    struct device_tally tallies[32];
    struct work w = {.h = h, .rows = h->rows, .tallies = tallies};
    int64_t parts = cpu_parts(h->rows);
    BUG_ON(h->kept != DEVICE_F32);
    dense_run(d, &w, parts, cross_entropy_part);
    for (int64_t i = 0; i < parts; i++) {
        h->tally->loss += tallies[i].loss;
        h->tally->correct += tallies[i].correct;
    }
}

void dense_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
               float scale, struct device_tally *tally)
{
    cpu_of(d)->set.kernels->mse(dx, x, y, rows, cols, scale, tally);
}

void dense_tally_mean(struct device *d, float *to, const struct device_tally *tally, double divisor)
{
    (void)d;
    *to = (float)(tally->loss / divisor);
}

/* ---- flat arrays */

static void sum_squares_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    (void)thread;
    w->sums[part] = w->k->sum_squares(w->x + (size_t)part * PIECE, flat_part_count(w->n, part));
}

void dense_sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    struct work w = {.x = x, .n = n};
    w.sums = cpu_scratch(cpu_of(d), (size_t)flat_parts(n) * sizeof(double));
    if (!w.sums)
        return;
    dense_run(d, &w, flat_parts(n), sum_squares_part);
    *out = 0.0;
    for (int64_t i = 0; i < flat_parts(n); i++)
        *out += w.sums[i];
}

void dense_clip_scale(struct device *d, float *scale, const double *squares, double clip)
{
    double by = clip / (sqrt(*squares) + 1e-6);
    (void)d;
    *scale = (float)(by < 1.0 ? by : 1.0);
}

static void scale_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    (void)thread;
    w->k->scale(w->to + (size_t)part * PIECE, flat_part_count(w->n, part), w->scale);
}

void dense_scale(struct device *d, float *x, size_t n, float by)
{
    struct work w = {.to = x, .n = n, .scale = by};
    dense_run(d, &w, flat_parts(n), scale_part);
}

static void add_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    size_t from = (size_t)part * PIECE;
    (void)thread;
    w->k->bias(w->to + from, w->x + from, 1, (int64_t)flat_part_count(w->n, part));
}

void dense_add(struct device *d, float *y, const float *x, size_t n)
{
    struct work w = {.to = y, .x = x, .n = n};
    dense_run(d, &w, flat_parts(n), add_part);
}

/* ---- optimizers */

static void sgd_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    size_t from = (size_t)part * PIECE;
    (void)thread;
    w->k->sgd(w->h, w->to + from, w->x + from, w->v ? w->v + from : NULL, flat_part_count(w->n, part));
}

void dense_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n)
{
    struct work w = {.h = h, .to = p, .x = g, .v = v, .n = n};
    dense_run(d, &w, flat_parts(n), sgd_part);
}

static void adamw_part(void *arg, int64_t part, int thread)
{
    struct work *w = arg;
    size_t from = (size_t)part * PIECE;
    (void)thread;
    w->k->adamw(w->h, w->to + from, w->x + from, w->m + from, w->v + from, flat_part_count(w->n, part));
}

void dense_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m, float *v,
                 size_t n)
{
    struct work w = {.h = h, .to = p, .x = g, .m = m, .v = v, .n = n};
    dense_run(d, &w, flat_parts(n), adamw_part);
}
