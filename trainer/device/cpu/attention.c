/* Causal attention on the CPU: one head of one row at a time, in strips of STRIP queries. Its products are
 * small, so this file computes them itself, in tiles that stay in registers, and does not call the library.
 * The file is compiled once for each instruction set. Products are contracted into fused multiply-adds if the
 * set has them, so bits depend on the set (as those of the library's products do).
 *
 * The factor of a product that is read by columns is transposed first, in panels of STRIP columns: (size,
 * STRIP). The other factors are read in place, except in two cases, in which they are copied and padded to
 * `wide` floats: sizes that are not whole tiles, and long sequences, whose rows would map to few lines of the
 * cache. Strips of scores are (STRIP, span): the columns of all keys, in whole panels, and some more, so that
 * rows do not map to the same lines of the cache. */
#include "trainer/device/cpu/dropout.h"
#include "trainer/device/cpu/sets.h"
#include "trainer/device/cpu/transpose.h"
#include "trainer/device/cpu/vec.h"

#define STRIP CPU_ATTENTION_STRIP
#define ROWS 4 /* rows of a tile */

/* The columns of a tile fill TILE registers of the instruction set. */
#if defined(__AVX512F__)
#define REGISTER 16
#define TILE 4
#elif defined(__AVX2__)
#define REGISTER 8
#define TILE 2
#else
#define REGISTER 4
#define TILE 2
#endif
typedef float vr __attribute__((vector_size(REGISTER * 4)));

VEC_INLINE vr vr_load(const float *p)
{
    vr v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* c (ROWS, n registers) = or += a (ROWS, k) b (k, n registers); element (i, l) of a is a[i * ai + l * al]. */
VEC_INLINE void product_tile(const int n, bool add, int64_t k, const float *a, int64_t ai, int64_t al,
                             const float *b, int64_t ldb, float *c, int64_t ldc)
{
    /* The sums of the tile stay in registers during the whole loop over k. */
    vr sum[ROWS][TILE];
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
            sum[i][j] = add ? vr_load(c + i * ldc + j * REGISTER) : (vr){0};
    for (int64_t l = 0; l < k; l++) {
        vr right[TILE];
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
            right[j] = vr_load(b + l * ldb + j * REGISTER);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            float left = a[i * ai + l * al];
#pragma GCC unroll 4
            for (int j = 0; j < n; j++)
                sum[i][j] += left * right[j];
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
            memcpy(c + i * ldc + j * REGISTER, &sum[i][j], sizeof(vr));
}

/* c (ROWS, n) = or += a (ROWS, k) b (k, n); n is a multiple of LANES. */
static void rows_product(bool add, int64_t n, int64_t k, const float *a, int64_t ai, int64_t al,
                         const float *b, int64_t ldb, float *c, int64_t ldc)
{
    int64_t j = 0;
    for (; j + TILE * REGISTER <= n; j += TILE * REGISTER)
        product_tile(TILE, add, k, a, ai, al, b + j, ldb, c + j, ldc);
#if TILE * REGISTER > LANES
    if (n - j == 3 * LANES)
        product_tile(3, add, k, a, ai, al, b + j, ldb, c + j, ldc);
    else if (n - j == 2 * LANES)
        product_tile(2, add, k, a, ai, al, b + j, ldb, c + j, ldc);
    else if (n - j == LANES)
        product_tile(1, add, k, a, ai, al, b + j, ldb, c + j, ldc);
#endif
}

/* ---- copies of a head */

struct rows {
    const float *at;
    int64_t ld;
};

struct head {
    const struct device_attention *h;
    int64_t row, head;
    int64_t size, wide, context, span; /* span: distance between two rows of a strip, in floats */
    int64_t ld;                        /* distance between two rows of qkv, in floats */
    float scale;                       /* 1 / sqrt(size) */
    struct rows q, k, v, d_o;
    float *copies[4];      /* copies of q, k, v and d_o, (context + ROWS, wide) */
    float *kt, *vt;        /* panels (size,STRIP); keys are scaled */
    float *dk, *dv, *out;  /* dk and dv: (context + STRIP, wide); out: (STRIP,wide) */
    float *score, *dscore; /* strips (STRIP,span) */
};

static int64_t scratch_floats(int64_t context, int64_t size)
{
    int64_t wide = cpu_rounded(size, LANES), rows = cpu_rounded(context, STRIP) + STRIP;
    return rows * wide * 8 + wide * STRIP + 2 * STRIP * (rows + LANES);
}

/* Divides the scratch memory, scratch_floats() floats. */
static void head_lay_out(struct head *s, const struct device_attention *h, int64_t row, int64_t head,
                         float *at)
{
    int64_t width = h->n.width, context = h->n.context, size = width / h->heads;
    int64_t wide = cpu_rounded(size, LANES), rows = cpu_rounded(context, STRIP) + STRIP;
    *s = (struct head){.h = h, .row = row, .head = head, .size = size, .wide = wide, .context = context};
    s->span = rows + LANES;
    s->ld = 3 * width;
    s->scale = 1.0f / sqrtf((float)size);
    float **arrays[] = {&s->copies[0], &s->copies[1], &s->copies[2], &s->copies[3],
                        &s->kt,        &s->vt,        &s->dk,        &s->dv};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++, at += rows * wide)
        *arrays[i] = at;
    s->out = at;
    s->score = s->out + wide * STRIP;
    s->dscore = s->score + STRIP * s->span;
}

/* Returns (context,size) values whose rows lie ld apart in a form that products can read: whole tiles of
 * rows, whole vectors of columns. Copies them if they do not have that form already. */
static struct rows rows_of(const struct head *s, float *copy, const float *from, int64_t ld)
{
    if (s->size % LANES == 0 && s->context % LANES == 0 && s->context <= 2 * STRIP)
        return (struct rows){from, ld};
    for (int64_t t = 0; t < s->context; t++) {
        int64_t j = 0;
        for (; j + LANES <= s->size; j += LANES)
            vec_store(copy + t * s->wide + j, vec_load(from + t * ld + j));
        if (j < s->size)
            vec_store(copy + t * s->wide + j, vec_load_part(from + t * ld + j, s->size - j));
    }
    memset(copy + s->context * s->wide, 0, (size_t)(ROWS * s->wide) * sizeof(float));
    return (struct rows){copy, s->wide};
}

static void take_rows(struct head *s)
{
    int64_t width = s->h->n.width;
    const float *q = (const float *)s->h->qkv + s->row * s->context * s->ld + s->head * s->size;
    s->q = rows_of(s, s->copies[0], q, s->ld);
    s->k = rows_of(s, s->copies[1], q + width, s->ld);
    s->v = rows_of(s, s->copies[2], q + 2 * width, s->ld);
}

/* Transposes sixteen rows of `size` floats to sixteen columns of a panel. */
static void transpose_square(float *to, const float *from, int64_t ld, int64_t size, float scale)
{
    vf r[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        r[i] = vec_load(from + i * ld);
    vec_transpose(r);
    for (int64_t i = 0; i < size && i < LANES; i++)
        vec_store(to + i * STRIP, scale * r[i]);
}

/* Makes the panels of the transposed rows. Rows after the last one hold any values, because their scores are
 * never read. */
static void panels_transpose(const struct head *s, float *to, struct rows from, float scale)
{
    for (int64_t t = 0; t < s->context; t += LANES) {
        float *panel = to + t / STRIP * STRIP * s->wide + t % STRIP;
        for (int64_t j = 0; j < s->size; j += LANES)
            transpose_square(panel + j * STRIP, from.at + t * from.ld + j, from.ld, s->size - j, scale);
    }
}

/* ---- strips */

/* score (STRIP,span) = left (rows,size) panels^T, only for the keys that the queries see. */
static void make_scores(const struct head *s, float *score, struct rows left, const float *panels,
                        int64_t first, int64_t rows)
{
    for (int64_t p = 0; p <= first; p += STRIP)
        for (int64_t i = 0; i < rows; i += ROWS) {
            int64_t n = p < first ? STRIP : cpu_rounded(i + ROWS, LANES);
            rows_product(false, n, s->size, left.at + (first + i) * left.ld, left.ld, 1, panels + p * s->wide,
                         STRIP, score + i * s->span + p, s->span);
        }
}

/* out (STRIP,wide) = score (rows, keys) values (keys, wide). */
static void weigh_values(const struct head *s, const float *score, struct rows values, int64_t first,
                         int64_t rows)
{
    for (int64_t p = 0; p <= first; p += STRIP)
        for (int64_t i = 0; i < rows; i += ROWS) {
            int64_t keys = p < first ? STRIP : i + ROWS;
            rows_product(p > 0, s->wide, keys, score + i * s->span + p, s->span, 1, values.at + p * values.ld,
                         values.ld, s->out + i * s->wide, s->wide);
        }
}

/* sum (keys,wide) += score^T (keys, rows) left (rows, wide). */
static void weigh_queries(const struct head *s, float *sum, const float *score, struct rows left,
                          int64_t first, int64_t rows)
{
    for (int64_t p = 0; p <= first; p += STRIP)
        for (int64_t j = 0; j < STRIP; j += ROWS) {
            int64_t i = p < first ? 0 : j;
            if (i < rows)
                rows_product(true, s->wide, rows - i, score + i * s->span + p + j, 1, s->span,
                             left.at + (first + i) * left.ld, left.ld, sum + (p + j) * s->wide, s->wide);
        }
}

/* Writes zeros behind the last key of a strip's row, up to the last column that the products read. The vector
 * that holds the last key is padded with zeros already. */
static void row_blank(float *row, int64_t keys, int64_t first)
{
    for (int64_t j = cpu_rounded(keys, LANES); j < first + STRIP; j += LANES)
        vec_store(row + j, (vf){0});
}

static void row_drop(const struct head *s, float *row, int64_t query, int64_t keys)
{
    float mask[DROPOUT_CHUNK];
    for (int64_t j = 0; j < keys; j += DROPOUT_CHUNK) {
        dropout_mask(mask, &s->h->dropout, s->row, s->head * s->context + query, j);
        for (int i = 0; i < DROPOUT_CHUNK; i++)
            row[j + i] *= mask[i];
    }
}

/* Replaces a query's scores by e^(score - top), with zeros after them. Returns their sum, and sets *lse to
 * the log of the sum of e^score. */
static float row_soften(float *row, int64_t keys, float *lse)
{
    int64_t last = (keys - 1) / LANES * LANES;
    vi there = vec_first(keys - last);
    vf most = vec_select(there, vec_load(row + last), vec_all(-INFINITY)), sum = {0};
    for (int64_t j = 0; j < last; j += LANES)
        most = vec_max(vec_load(row + j), most);
    float top = vec_top(most);
    for (int64_t j = 0; j < last; j += LANES) {
        vf e = vec_exp(vec_load(row + j) - top);
        vec_store(row + j, e);
        sum += e;
    }
    vf e = vec_select(there, vec_exp(vec_load(row + last) - top), (vf){0});
    vec_store(row + last, e);
    float whole = vec_sum(sum + e);
    *lse = top + logf(whole);
    return whole;
}

static void forward_strip(const struct head *s, int64_t first, int64_t rows)
{
    const struct device_attention *h = s->h;
    float *lse = h->lse + (s->row * h->heads + s->head) * s->context, sums[STRIP];
    make_scores(s, s->score, s->q, s->kt, first, rows);
    for (int64_t i = 0; i < cpu_rounded(rows, ROWS); i++) {
        float *row = s->score + i * s->span;
        int64_t keys = i < rows ? first + i + 1 : 0;
        if (i < rows)
            sums[i] = row_soften(row, keys, &lse[first + i]);
        if (i < rows && h->dropout.p > 0.0f)
            row_drop(s, row, first + i, keys);
        row_blank(row, keys, first);
    }
    weigh_values(s, s->score, s->v, first, rows);
    for (int64_t i = 0; i < rows; i++) {
        float *o = (float *)h->o + (s->row * s->context + first + i) * h->n.width + s->head * s->size;
        float inverse = 1.0f / sums[i];
        for (int64_t j = 0; j < s->size; j++)
            o[j] = s->out[i * s->wide + j] * inverse;
    }
}

static void forward(const struct device_attention *h, int64_t row, int64_t head, float *scratch)
{
    struct head s;
    head_lay_out(&s, h, row, head, scratch);
    take_rows(&s);
    panels_transpose(&s, s.kt, s.k, s.scale);
    for (int64_t first = 0; first < s.context; first += STRIP)
        forward_strip(&s, first, s.context - first < STRIP ? s.context - first : STRIP);
}

/* ---- backward */

/* Computes p = e^(score - lse) and ds = p (dp - sum of d_o o); with dropout, dp is multiplied by the mask.
 * Leaves the weights of the values in score, and ds in dscore. */
static void backward_row(const struct head *s, int64_t query, int64_t i, const float *d_o)
{
    const struct device_attention *h = s->h;
    int64_t at = s->row * s->context + query;
    const float *o = (const float *)h->o + at * h->n.width + s->head * s->size;
    float *p = s->score + i * s->span, *ds = s->dscore + i * s->span;
    float lse = h->lse[(s->row * h->heads + s->head) * s->context + query], dot = 0.0f;
    vf sum = {0};
    int64_t j = 0;
    for (; j + LANES <= s->size; j += LANES)
        sum += vec_load(o + j) * vec_load(d_o + j);
    for (; j < s->size; j++)
        dot += o[j] * d_o[j];
    dot += vec_sum(sum);
    if (h->dropout.p > 0.0f)
        row_drop(s, ds, query, query + 1);
    for (j = 0; j <= query; j += LANES) {
        vf e = vec_exp(vec_load(p + j) - lse);
        /* This vector holds the query's own position. The elements after it are in the future. */
        if (query - j < LANES - 1) {
            vi there = vec_first(query + 1 - j);
            e = vec_select(there, e, (vf){0});
            vec_store(ds + j, vec_select(there, vec_load(ds + j), (vf){0}));
        }
        vec_store(p + j, e);
        vec_store(ds + j, e * (vec_load(ds + j) - dot));
    }
    if (h->dropout.p > 0.0f)
        row_drop(s, p, query, query + 1);
}

static void backward_strip(const struct head *s, const float *d_o, float *dqkv, int64_t first, int64_t rows)
{
    int64_t width = s->h->n.width;
    make_scores(s, s->score, s->q, s->kt, first, rows);
    make_scores(s, s->dscore, s->d_o, s->vt, first, rows);
    for (int64_t i = 0; i < cpu_rounded(rows, ROWS); i++) {
        int64_t keys = i < rows ? first + i + 1 : 0;
        if (i < rows)
            backward_row(s, first + i, i, d_o + (first + i) * width);
        row_blank(s->score + i * s->span, keys, first);
        row_blank(s->dscore + i * s->span, keys, first);
    }
    weigh_queries(s, s->dv, s->score, s->d_o, first, rows);
    weigh_queries(s, s->dk, s->dscore, s->q, first, rows);
    weigh_values(s, s->dscore, s->k, first, rows);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < s->size; j++)
            dqkv[(first + i) * s->ld + j] = s->out[i * s->wide + j] * s->scale;
}

static void backward(const struct device_attention *h, int64_t row, int64_t head, const void *d_o_kept,
                     void *dqkv_kept, float *scratch)
{
    struct head s;
    int64_t width = h->n.width;
    head_lay_out(&s, h, row, head, scratch);
    const float *d_o = (const float *)d_o_kept + row * s.context * width + head * s.size;
    float *dqkv = (float *)dqkv_kept + row * s.context * s.ld + head * s.size;
    take_rows(&s);
    s.d_o = rows_of(&s, s.copies[3], d_o, width);
    panels_transpose(&s, s.kt, s.k, s.scale);
    panels_transpose(&s, s.vt, s.v, 1.0f);
    memset(s.dk, 0, (size_t)(cpu_rounded(s.context, STRIP) * s.wide) * sizeof(float));
    memset(s.dv, 0, (size_t)(cpu_rounded(s.context, STRIP) * s.wide) * sizeof(float));
    for (int64_t first = 0; first < s.context; first += STRIP)
        backward_strip(&s, d_o, dqkv, first, s.context - first < STRIP ? s.context - first : STRIP);
    for (int64_t t = 0; t < s.context; t++)
        for (int64_t j = 0; j < s.size; j++) {
            dqkv[t * s.ld + width + j] = s.dk[t * s.wide + j] * s.scale;
            dqkv[t * s.ld + 2 * width + j] = s.dv[t * s.wide + j];
        }
}

const struct cpu_attention DDP_ATTENTION = {
    .forward = forward, .backward = backward, .floats = scratch_floats};
