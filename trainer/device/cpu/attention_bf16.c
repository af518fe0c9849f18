/* Causal attention on a CPU with bf16 products, for jobs with `precision: bf16`: one head of one row at a time, in strips of
 * STRIP queries, as in attention.c. All factors of products are rounded to bf16: q, k, v, d_o, the weights p, and ds.
 * Sums, softmax, its gradient and all results are float. Compiled for AVX-512 BF16 only.
 *
 * vdpbf16ps multiplies pairs along the dimension that is summed: lane i of the right factor holds two values, which meet two
 * neighbours of the left factor. So the right factors are laid out in pairs, as 32-bit words:
 *     panels  of k^T and v^T, for the scores:   (keys / STRIP, wide / 2, STRIP) words; a word is a pair of columns
 *     pairs   of q, k, v, d_o:                  (tokens / 2, wide) words; a word is a pair of tokens
 * The left factors are rows of bf16, whose neighbours are pairs already: q, d_o, and strips p and ds of (STRIP, span). For
 * p^T and ds^T, whose sums go over queries, strips hold pairs of queries: (STRIP / 2, span) words.
 *
 * Tokens and columns that do not exist are zero in all of these, so products need no special case for them. */
#include "trainer/device/cpu/dropout.h"
#include "trainer/device/cpu/sets.h"
#include "trainer/device/cpu/transpose.h"
#include "trainer/device/cpu/vec.h"

#define STRIP CPU_ATTENTION_STRIP
#define ROWS 4 /* rows of a tile */
#define TILE 4 /* registers of a row of a tile */
#define PAIR 2
#define AHEAD 16 /* rows */

/* ---- bf16 */

VEC_INLINE __m256i narrow(vf v)
{
    return (__m256i)_mm512_cvtneps_pbh((__m512)v);
}

/* Returns sixteen words whose lower halves are the values of `first`, rounded, and whose upper halves those of `second`. */
VEC_INLINE __m512i narrow_pairs(vf first, vf second)
{
    __m512i low = _mm512_cvtepu16_epi32(narrow(first)), high = _mm512_cvtepu16_epi32(narrow(second));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* ---- products */

/* Where tiles read a left factor: row i of pair p is at + i * row + p * pair, in bytes. */
struct left {
    const char *at;
    int64_t row, pair;
};

VEC_INLINE __m512bh pair_spread(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof(word));
    return (__m512bh)_mm512_set1_epi32(word);
}

/* c (ROWS, n registers) = or += left (ROWS, pairs) b (pairs, n registers); b: words, ldb of them from pair to pair. */
VEC_INLINE void half_tile(const int n, bool add, int64_t pairs, struct left left, const uint32_t *b,
                          int64_t ldb, float *c, int64_t ldc)
{
    __m512 sum[ROWS][TILE];
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
            sum[i][j] = add ? _mm512_loadu_ps(c + i * ldc + j * LANES) : _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++) {
        __m512bh right[TILE];
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
            right[j] = (__m512bh)_mm512_loadu_si512(b + p * ldb + j * LANES);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            __m512bh pair = pair_spread(left.at + i * left.row + p * left.pair);
#pragma GCC unroll 4
            for (int j = 0; j < n; j++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], pair, right[j]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
            _mm512_storeu_ps(c + i * ldc + j * LANES, sum[i][j]);
}

/* The same for n columns, a multiple of LANES. */
static void half_product(bool add, int64_t n, int64_t pairs, struct left left, const uint32_t *b, int64_t ldb,
                         float *c, int64_t ldc)
{
    int64_t j = 0;
    for (; j + TILE * LANES <= n; j += TILE * LANES)
        half_tile(TILE, add, pairs, left, b + j, ldb, c + j, ldc);
    if (n - j == 3 * LANES)
        half_tile(3, add, pairs, left, b + j, ldb, c + j, ldc);
    else if (n - j == 2 * LANES)
        half_tile(2, add, pairs, left, b + j, ldb, c + j, ldc);
    else if (n - j == LANES)
        half_tile(1, add, pairs, left, b + j, ldb, c + j, ldc);
}

/* ---- factors of a head */

struct half_head {
    const struct device_attention *h;
    int64_t row, head;
    int64_t size, wide, context, whole; /* whole: context, in whole strips */
    int64_t span;                       /* distance between two rows of a strip, in elements */
    int64_t ld;                         /* distance between two rows of qkv, in floats */
    float scale;                        /* 1 / sqrt(size) */
    uint16_t *q, *d_o, *other;          /* rows (whole,wide); other: of k or v, while their words are made */
    uint32_t *kt, *vt;                  /* panels */
    uint32_t *qs, *ks, *vs, *d_os;      /* pairs of tokens; vs is qs, because only forward needs it */
    uint16_t *rows;                     /* strip of p, or in backward of ds */
    uint32_t *ps, *dss;                 /* strips of pairs of queries */
    float *dk, *dv, *out;               /* dk and dv: (whole,wide); out: (STRIP,wide) */
    float *score, *dscore;              /* strips */
};

static int64_t half_span(int64_t whole)
{
    return whole + LANES; /* so that rows do not map to the same lines of the cache */
}

static int64_t half_floats(int64_t context, int64_t size)
{
    int64_t wide = cpu_rounded(size, LANES), whole = cpu_rounded(context, STRIP);
    return whole * wide * 6 + STRIP * wide + STRIP * half_span(whole) * 4;
}

/* Divides the scratch memory, half_floats() floats. */
static void half_lay_out(struct half_head *s, const struct device_attention *h, int64_t row, int64_t head,
                         float *at)
{
    int64_t context = h->n.context, size = h->n.width / h->heads, wide = cpu_rounded(size, LANES);
    *s = (struct half_head){.h = h, .row = row, .head = head, .size = size, .wide = wide, .context = context};
    s->whole = cpu_rounded(context, STRIP);
    s->span = half_span(s->whole);
    s->ld = 3 * h->n.width;
    s->scale = 1.0f / sqrtf((float)size);
    int64_t values = s->whole * wide, strip = STRIP * s->span;
    s->dk = at;
    s->dv = s->dk + values;
    s->out = s->dv + values;
    s->score = s->out + STRIP * wide;
    s->dscore = s->score + strip;
    uint16_t *half = (uint16_t *)(void *)(s->dscore + strip);
    uint16_t **rows[] = {&s->q, &s->d_o, &s->other};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++, half += values)
        *rows[i] = half;
    uint32_t **words[] = {&s->kt, &s->vt, &s->qs, &s->ks, &s->d_os};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++, half += values)
        *words[i] = (uint32_t *)(void *)half;
    s->vs = s->qs;
    s->rows = half;
    s->ps = (uint32_t *)(void *)(half + strip);
    s->dss = s->ps + strip / PAIR;
}

VEC_INLINE __mmask16 lanes_of(int64_t n)
{
    return n >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}
VEC_INLINE vf widen(__m256i v)
{
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16);
}
/* Sixteen elements of the kept type, or fewer: the lanes behind them are zero, and are not written. */
VEC_INLINE vf kept_load(enum device_type kept, const void *from, int64_t at, __mmask16 there)
{
    if (kept == DEVICE_F32)
        return (vf)_mm512_maskz_loadu_ps(there, (const float *)from + at);
    return widen(_mm256_maskz_loadu_epi16(there, (const uint16_t *)from + at));
}
VEC_INLINE void kept_store(enum device_type kept, void *to, int64_t at, vf v, __mmask16 there)
{
    if (kept == DEVICE_F32)
        _mm512_mask_storeu_ps((float *)to + at, there, (__m512)v);
    else
        _mm256_mask_storeu_epi16((uint16_t *)to + at, there, narrow(v));
}

/* Writes n floats times `by` to the elements of the kept type from number `at` on. */
static void kept_put(enum device_type kept, void *to, int64_t at, const float *from, float by, int64_t n)
{
    for (int64_t j = 0; j < n; j += LANES)
        kept_store(kept, to, at + j, vec_load(from + j) * by, lanes_of(n - j));
}

/* Copies (context,size) elements of the kept type, from number `at` of `from` on, with ld elements from row to row. Rounds
 * floats to bf16. `to` is (whole,wide). */
static void rows_take(const struct half_head *s, uint16_t *to, const void *from, int64_t at, int64_t ld)
{
    const enum device_type kept = s->h->kept;
    const int64_t bytes = (int64_t)device_size(kept);
    for (int64_t t = 0; t < s->context; t++, at += ld) {
        /* Each row lies in a page of its own, and the processor does not fetch the next page by itself. */
        for (int64_t j = 0; t + AHEAD < s->context && j < s->size * bytes; j += 64)
            _mm_prefetch((const char *)from + (at + AHEAD * ld) * bytes + j, _MM_HINT_T0);
        for (int64_t j = 0; j < s->wide; j += LANES) {
            const __mmask16 there = lanes_of(s->size - j);
            __m256i v = kept == DEVICE_F32 ? narrow(kept_load(kept, from, at + j, there))
                                           : _mm256_maskz_loadu_epi16(there, (const uint16_t *)from + at + j);
            _mm256_storeu_si256((__m256i *)(void *)(to + t * s->wide + j), v);
        }
    }
    memset(to + s->context * s->wide, 0, (size_t)((s->whole - s->context) * s->wide) * sizeof(*to));
}

/* Makes pairs of tokens from rows. */
static void pairs_make(const struct half_head *s, uint32_t *to, const uint16_t *rows)
{
    for (int64_t t = 0; t < s->whole; t += PAIR, rows += PAIR * s->wide, to += s->wide)
        for (int64_t j = 0; j < s->wide; j += LANES) {
            __m256i first = _mm256_loadu_si256((const __m256i *)(const void *)(rows + j));
            __m256i second = _mm256_loadu_si256((const __m256i *)(const void *)(rows + s->wide + j));
            __m512i low = _mm512_cvtepu16_epi32(first), high = _mm512_cvtepu16_epi32(second);
            _mm512_storeu_si512(to + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
}

/* Makes panels of the transposed rows. */
static void panels_make(const struct half_head *s, uint32_t *to, const uint16_t *rows)
{
    int64_t words = s->wide / PAIR;
    for (int64_t t = 0; t < s->whole; t += LANES) {
        uint32_t *panel = to + t / STRIP * STRIP * words + t % STRIP;
        for (int64_t j = 0; j < words; j += LANES) {
            __mmask16 there = words - j >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << (words - j)) - 1);
            vf r[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                r[i] = (vf)_mm512_maskz_loadu_epi32(there, rows + (t + i) * s->wide + j * PAIR);
            vec_transpose(r);
            for (int64_t i = 0; i < LANES && j + i < words; i++)
                _mm512_storeu_si512(panel + (j + i) * STRIP, (__m512i)r[i]);
        }
    }
}

/* The first element of q, k or v in qkv, and of the head in o. */
static int64_t qkv_at(const struct half_head *s, int which)
{
    return s->row * s->context * s->ld + which * s->h->n.width + s->head * s->size;
}
static int64_t o_at(const struct half_head *s, int64_t query)
{
    return (s->row * s->context + query) * s->h->n.width + s->head * s->size;
}

/* ---- strips */

/* score (STRIP,span) = left (rows,size) panels^T, only for the keys that the queries see. */
static void half_scores(const struct half_head *s, float *score, const uint16_t *left, const uint32_t *panels,
                        int64_t first, int64_t rows)
{
    int64_t words = s->wide / PAIR;
    for (int64_t p = 0; p <= first; p += STRIP)
        for (int64_t i = 0; i < rows; i += ROWS) {
            int64_t n = p < first ? STRIP : cpu_rounded(i + ROWS, LANES);
            struct left at = {(const char *)(left + (first + i) * s->wide), s->wide * 2, 4};
            half_product(false, n, words, at, panels + p * words, STRIP, score + i * s->span + p, s->span);
        }
}

/* out (STRIP,wide) = strip (rows, keys) values (keys, wide). */
static void half_weigh_values(const struct half_head *s, const uint32_t *values, int64_t first, int64_t rows)
{
    for (int64_t p = 0; p <= first; p += STRIP)
        for (int64_t i = 0; i < rows; i += ROWS) {
            int64_t keys = p < first ? STRIP : i + ROWS;
            struct left at = {(const char *)(s->rows + i * s->span + p), s->span * 2, 4};
            half_product(p > 0, s->wide, keys / PAIR, at, values + p / PAIR * s->wide, s->wide,
                         s->out + i * s->wide, s->wide);
        }
}

/* sum (keys,wide) += strip^T (keys, rows) values (rows, wide). */
static void half_weigh_queries(const struct half_head *s, float *sum, const uint32_t *strip,
                               const uint32_t *values, int64_t first, int64_t rows)
{
    for (int64_t p = 0; p <= first; p += STRIP)
        for (int64_t j = 0; j < STRIP; j += ROWS) {
            int64_t i = p < first ? 0 : j; /* queries before the key do not see it */
            if (i >= rows)
                continue;
            struct left at = {(const char *)(strip + i / PAIR * s->span + p + j), 4, s->span * 4};
            half_product(true, s->wide, (rows - i + 1) / PAIR, at, values + (first + i) / PAIR * s->wide,
                         s->wide, sum + (p + j) * s->wide, s->wide);
        }
}

/* The mask of a query's weights, a chunk at a time. */
struct mask {
    const struct device_dropout *dropout;
    int64_t row, line;
    float chunk[DROPOUT_CHUNK];
};

VEC_INLINE vf half_dropped(struct mask *m, vf v, int64_t j)
{
    if (m->dropout->p <= 0.0f)
        return v;
    if (j % DROPOUT_CHUNK == 0)
        dropout_mask(m->chunk, m->dropout, m->row, m->line, j);
    return v * vec_load(m->chunk + j % DROPOUT_CHUNK);
}

static struct mask mask_of(const struct half_head *s, int64_t query)
{
    struct mask m;
    m.dropout = &s->h->dropout;
    m.row = s->row;
    m.line = s->head * s->context + query;
    return m;
}

/* ---- forward */

static void rows_blank(uint16_t *row, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j += LANES)
        _mm256_storeu_si256((__m256i *)(void *)(row + j), _mm256_setzero_si256());
}

/* Computes a query's row of p, which is e^(score - top), and fills it with zeros up to column `end`. Returns the sum of the row before
 * dropout, and sets *lse to the log of the sum of e^score. */
static float half_soften(const struct half_head *s, int64_t query, int64_t i, int64_t end, float *lse)
{
    const float *score = s->score + i * s->span;
    uint16_t *to = s->rows + i * s->span;
    struct mask mask = mask_of(s, query);
    int64_t keys = query + 1, last = (keys - 1) / LANES * LANES;
    vi there = vec_first(keys - last);
    vf most = vec_select(there, vec_load(score + last), vec_all(-INFINITY)), sum = {0};
    for (int64_t j = 0; j < last; j += LANES)
        most = vec_max(vec_load(score + j), most);
    float top = vec_top(most) * s->scale;
    for (int64_t j = 0; j < last; j += LANES) {
        vf e = vec_exp(vec_load(score + j) * s->scale - top);
        sum += e;
        _mm256_storeu_si256((__m256i *)(void *)(to + j), narrow(half_dropped(&mask, e, j)));
    }
    vf e = vec_select(there, vec_exp(vec_load(score + last) * s->scale - top), (vf){0});
    sum += e;
    _mm256_storeu_si256((__m256i *)(void *)(to + last), narrow(half_dropped(&mask, e, last)));
    rows_blank(to, last + LANES, end);
    float whole = vec_sum(sum);
    *lse = top + logf(whole);
    return whole;
}

static void half_forward_strip(const struct half_head *s, int64_t first, int64_t rows)
{
    const struct device_attention *h = s->h;
    float *lse = h->lse + (s->row * h->heads + s->head) * s->context, sums[STRIP];
    half_scores(s, s->score, s->q, s->kt, first, rows);
    for (int64_t i = 0; i < rows; i++)
        sums[i] = half_soften(s, first + i, i, first + STRIP, &lse[first + i]);
    for (int64_t i = rows; i < cpu_rounded(rows, ROWS); i++)
        rows_blank(s->rows + i * s->span, 0, first + STRIP);
    half_weigh_values(s, s->vs, first, rows);
    for (int64_t i = 0; i < rows; i++)
        kept_put(h->kept, h->o, o_at(s, first + i), s->out + i * s->wide, 1.0f / sums[i], s->size);
}

static void half_forward(const struct device_attention *h, int64_t row, int64_t head, float *scratch)
{
    struct half_head s;
    half_lay_out(&s, h, row, head, scratch);
    rows_take(&s, s.q, h->qkv, qkv_at(&s, 0), s.ld);
    rows_take(&s, s.other, h->qkv, qkv_at(&s, 1), s.ld);
    panels_make(&s, s.kt, s.other);
    rows_take(&s, s.other, h->qkv, qkv_at(&s, 2), s.ld);
    pairs_make(&s, s.vs, s.other);
    for (int64_t first = 0; first < s.context; first += STRIP)
        half_forward_strip(&s, first, s.context - first < STRIP ? s.context - first : STRIP);
}

/* ---- backward */

/* One query of backward, and what its row of ds needs. */
struct half_query {
    bool exists;
    int64_t keys;
    float lse, dot; /* dot: sum of d_o o */
    const float *score, *dscore;
    struct mask mask;
};

static struct half_query query_of(const struct half_head *s, int64_t query, int64_t i, const void *d_o,
                                  bool exists)
{
    const struct device_attention *h = s->h;
    struct half_query q = {.exists = exists, .keys = exists ? query + 1 : 0};
    if (!exists)
        return q;
    vf sum = {0};
    for (int64_t j = 0; j < s->size; j += LANES) {
        const __mmask16 there = lanes_of(s->size - j);
        sum += kept_load(h->kept, h->o, o_at(s, query) + j, there) *
               kept_load(h->kept, d_o, o_at(s, query) + j, there);
    }
    q.dot = vec_sum(sum);
    q.lse = h->lse[(s->row * h->heads + s->head) * s->context + query];
    q.score = s->score + i * s->span;
    q.dscore = s->dscore + i * s->span;
    q.mask = mask_of(s, query);
    return q;
}

/* Sets *p to the weights of the values, and *ds to e^(score - lse) (dp - dot), at columns j to j + 15. With dropout, p and dp
 * are multiplied by the mask. Keys after the query are zero. */
VEC_INLINE void half_gradient(const struct half_head *s, struct half_query *q, int64_t j, vf *p, vf *ds)
{
    *p = *ds = (vf){0};
    if (j >= q->keys)
        return;
    vf e = vec_exp(vec_load(q->score + j) * s->scale - q->lse), dp = vec_load(q->dscore + j);
    vf ones = half_dropped(&q->mask, vec_all(1.0f), j);
    *p = e * ones;
    *ds = e * (dp * ones - q->dot);
    if (q->keys - j < LANES) {
        vi there = vec_first(q->keys - j);
        *p = vec_select(there, *p, (vf){0});
        *ds = vec_select(there, *ds, (vf){0});
    }
}

/* Makes the strips of p and ds for queries i and i + 1 of a strip. */
static void half_gradients(const struct half_head *s, const void *d_o, int64_t first, int64_t i, int64_t rows)
{
    struct half_query a = query_of(s, first + i, i, d_o, true);
    struct half_query b = query_of(s, first + i + 1, i + 1, d_o, i + 1 < rows);
    uint32_t *ps = s->ps + i / PAIR * s->span, *dss = s->dss + i / PAIR * s->span;
    uint16_t *row = s->rows + i * s->span;
    for (int64_t j = 0; j < first + STRIP; j += LANES) {
        vf p[PAIR], ds[PAIR];
        half_gradient(s, &a, j, &p[0], &ds[0]);
        half_gradient(s, &b, j, &p[1], &ds[1]);
        _mm512_storeu_si512(ps + j, narrow_pairs(p[0], p[1]));
        _mm512_storeu_si512(dss + j, narrow_pairs(ds[0], ds[1]));
        _mm256_storeu_si256((__m256i *)(void *)(row + j), narrow(ds[0]));
        _mm256_storeu_si256((__m256i *)(void *)(row + s->span + j), narrow(ds[1]));
    }
}

static void half_backward_strip(const struct half_head *s, const void *d_o, void *dqkv, int64_t first,
                                int64_t rows)
{
    half_scores(s, s->score, s->q, s->kt, first, rows);
    half_scores(s, s->dscore, s->d_o, s->vt, first, rows);
    for (int64_t i = 0; i < rows; i += PAIR)
        half_gradients(s, d_o, first, i, rows);
    for (int64_t i = cpu_rounded(rows, PAIR); i < cpu_rounded(rows, ROWS); i++)
        rows_blank(s->rows + i * s->span, 0, first + STRIP);
    half_weigh_queries(s, s->dv, s->ps, s->d_os, first, rows);
    half_weigh_queries(s, s->dk, s->dss, s->qs, first, rows);
    half_weigh_values(s, s->ks, first, rows);
    for (int64_t i = 0; i < rows; i++)
        kept_put(s->h->kept, dqkv, qkv_at(s, 0) + (first + i) * s->ld, s->out + i * s->wide, s->scale,
                 s->size);
}

static void half_backward(const struct device_attention *h, int64_t row, int64_t head, const void *d_o,
                          void *dqkv, float *scratch)
{
    struct half_head s;
    int64_t width = h->n.width;
    half_lay_out(&s, h, row, head, scratch);
    rows_take(&s, s.q, h->qkv, qkv_at(&s, 0), s.ld);
    pairs_make(&s, s.qs, s.q);
    rows_take(&s, s.other, h->qkv, qkv_at(&s, 1), s.ld);
    panels_make(&s, s.kt, s.other);
    pairs_make(&s, s.ks, s.other);
    rows_take(&s, s.other, h->qkv, qkv_at(&s, 2), s.ld);
    panels_make(&s, s.vt, s.other);
    rows_take(&s, s.d_o, d_o, o_at(&s, 0), width);
    pairs_make(&s, s.d_os, s.d_o);
    memset(s.dk, 0, (size_t)(s.whole * s.wide) * sizeof(float));
    memset(s.dv, 0, (size_t)(s.whole * s.wide) * sizeof(float));
    for (int64_t first = 0; first < s.context; first += STRIP)
        half_backward_strip(&s, d_o, dqkv, first, s.context - first < STRIP ? s.context - first : STRIP);
    for (int64_t t = 0; t < s.context; t++) {
        kept_put(h->kept, dqkv, qkv_at(&s, 1) + t * s.ld, s.dk + t * s.wide, s.scale, s.size);
        kept_put(h->kept, dqkv, qkv_at(&s, 2) + t * s.ld, s.dv + t * s.wide, 1.0f, s.size);
    }
}

const struct cpu_attention cpu_attention_bf16 = {
    .forward = half_forward, .backward = half_backward, .floats = half_floats};
