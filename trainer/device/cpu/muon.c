/* Muon's update of one matrix; compiled once per instruction set with DDP_MUON naming the table. Bits must
 * not depend on that, as in kernels.c. So the products are our own: each element is one sum in rising
 * order of its terms, each product and sum rounded by itself, whatever the size of the tiles. */
#include "trainer/device/cpu/muon.h"
#include "trainer/device/cpu/vec.h"

/* A tile of a product is held in registers: this many rows, and vectors of columns. The vectors have the
 * width of a register, because compilers keep wider ones in memory. */
#if defined(__AVX512F__)
#define TILE_LANES 16
#define TILE_ROWS 8
#define TILE_VECTORS 2
#elif defined(__AVX__)
#define TILE_LANES 8
#define TILE_ROWS 4
#define TILE_VECTORS 2
#else
#define TILE_LANES 4
#define TILE_ROWS 4
#define TILE_VECTORS 2
#endif
#define TILE_COLS (TILE_VECTORS * TILE_LANES)
typedef float tile_vector __attribute__((vector_size(TILE_LANES * 4)));

#define NEWTON_STEPS 5
static const float newton_a = 3.4445f, newton_b = -4.7750f, newton_c = 2.0315f;

struct newton {
    struct cpu_muon_shape s;
    float *x, *gram, *square, *panel;
};

/* c (TILE_ROWS,TILE_COLS) += a (TILE_ROWS,depth) panel (depth,TILE_COLS of CPU_MUON_PANEL) */
VEC_INLINE void tile_add(float *restrict c, int64_t c_stride, const float *restrict a, int64_t a_stride,
                         const float *restrict panel, int64_t depth)
{
    tile_vector sum[TILE_ROWS][TILE_VECTORS], b[TILE_VECTORS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < TILE_VECTORS; v++)
            memcpy(&sum[r][v], c + r * c_stride + v * TILE_LANES, sizeof(tile_vector));
    for (int64_t k = 0; k < depth; k++) {
        for (int v = 0; v < TILE_VECTORS; v++)
            memcpy(&b[v], panel + k * CPU_MUON_PANEL + v * TILE_LANES, sizeof(tile_vector));
        for (int r = 0; r < TILE_ROWS; r++)
            for (int v = 0; v < TILE_VECTORS; v++)
                sum[r][v] += a[r * a_stride + k] * b[v];
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < TILE_VECTORS; v++)
            memcpy(c + r * c_stride + v * TILE_LANES, &sum[r][v], sizeof(tile_vector));
}

/* c (rows,CPU_MUON_PANEL) += a (rows,depth) panel (depth,CPU_MUON_PANEL) */
static void panel_add(float *c, int64_t c_stride, const float *a, int64_t a_stride, const float *panel,
                      int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i < rows; i += TILE_ROWS)
        for (int64_t j = 0; j < CPU_MUON_PANEL; j += TILE_COLS)
            tile_add(c + i * c_stride + j, c_stride, a + i * a_stride, a_stride, panel + j, depth);
}

static void columns_pack(float *panel, const float *from, int64_t stride, int64_t depth)
{
    for (int64_t k = 0; k < depth; k++)
        memcpy(panel + k * CPU_MUON_PANEL, from + k * stride, CPU_MUON_PANEL * sizeof(float));
}

static void rows_pack(float *restrict panel, const float *restrict from, int64_t stride, int64_t depth)
{
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < CPU_MUON_PANEL; j++)
            panel[k * CPU_MUON_PANEL + j] = from[j * stride + k];
}

/* Only the panels' upper parts are computed; the rest is their mirror image. */
static void square_mirror(float *x, int64_t stride, int64_t rows)
{
    for (int64_t i = 0; i < rows; i += LANES)
        for (int64_t j = 0; j <= i; j += LANES)
            for (int64_t r = i; r < i + LANES; r++)
                for (int64_t c = j; c < j + LANES && c < r; c++)
                    x[r * stride + c] = x[c * stride + r];
}

/* gram = x x^T */
static void newton_gram(const struct newton *n)
{
    const struct cpu_muon_shape *s = &n->s;
    memset(n->gram, 0, s->square * sizeof(float));
    for (int64_t j = 0; j < s->rows; j += CPU_MUON_PANEL)
        for (int64_t k = 0; k < s->cols; k += CPU_MUON_DEPTH) {
            int64_t depth = s->cols - k < CPU_MUON_DEPTH ? s->cols - k : CPU_MUON_DEPTH;
            rows_pack(n->panel, n->x + j * s->stride + k, s->stride, depth);
            panel_add(n->gram + j, s->square_stride, n->x + k, s->stride, n->panel, j + CPU_MUON_PANEL,
                      depth);
        }
    square_mirror(n->gram, s->square_stride, s->rows);
}

/* square = b gram + c gram gram */
static void newton_polynomial(const struct newton *n)
{
    const struct cpu_muon_shape *s = &n->s;
    memset(n->square, 0, s->square * sizeof(float));
    for (int64_t j = 0; j < s->rows; j += CPU_MUON_PANEL) {
        columns_pack(n->panel, n->gram + j, s->square_stride, s->rows);
        panel_add(n->square + j, s->square_stride, n->gram, s->square_stride, n->panel, j + CPU_MUON_PANEL,
                  s->rows);
    }
    for (size_t i = 0; i < s->square; i += LANES)
        vec_store(n->square + i, newton_b * vec_load(n->gram + i) + newton_c * vec_load(n->square + i));
    square_mirror(n->square, s->square_stride, s->rows);
}

/* x = a x + square x, a panel of columns at a time: the panel is a copy, so x can be written. */
static void newton_apply(const struct newton *n)
{
    const struct cpu_muon_shape *s = &n->s;
    for (int64_t j = 0; j < s->cols; j += CPU_MUON_PANEL) {
        columns_pack(n->panel, n->x + j, s->stride, s->rows);
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t c = j; c < j + CPU_MUON_PANEL; c += LANES)
                vec_store(n->x + r * s->stride + c, newton_a * vec_load(n->x + r * s->stride + c));
        panel_add(n->x + j, s->stride, n->square, s->square_stride, n->panel, s->rows, s->rows);
    }
}

/* A block of LANES rows and columns at (r,c) of x: read or written as the matrix lies in the flat arrays. */
VEC_INLINE void block_put(const struct newton *n, int64_t r, int64_t c, vf block[LANES])
{
    for (int i = 0; i < LANES; i++) {
        if (!n->s.transposed) {
            vec_store(n->x + (r + i) * n->s.stride + c, block[i]);
            continue;
        }
        for (int j = 0; j < LANES; j++)
            n->x[(c + j) * n->s.stride + r + i] = block[i][j];
    }
}

VEC_INLINE vf row_part_get(const struct newton *n, int64_t r, int64_t c)
{
    vf row;
    if (!n->s.transposed)
        return vec_load(n->x + r * n->s.stride + c);
    for (int j = 0; j < LANES; j++)
        row[j] = n->x[(c + j) * n->s.stride + r];
    return row;
}

static vf floats_get(const float *from, int64_t n)
{
    return n >= LANES ? vec_load(from) : vec_load_part(from, n);
}

static void floats_put(float *to, vf x, int64_t n)
{
    if (n >= LANES)
        vec_store(to, x);
    else
        vec_store_part(to, x, n);
}

/* x = d + momentum m, after m = momentum m + d */
static void newton_take(const struct newton *n, const struct device_muon *h, const struct device_matrix *t,
                        const float *g, float *m)
{
    const float scale = h->scale ? *h->scale : 1.0f, momentum = h->momentum;
    memset(n->x, 0, n->s.matrix * sizeof(float));
    for (int64_t r = 0; r < t->rows; r += LANES)
        for (int64_t c = 0; c < t->cols; c += LANES) {
            vf block[LANES] = {{0}};
            for (int64_t i = 0; i < LANES && r + i < t->rows; i++) {
                int64_t at = (r + i) * t->stride + c;
                vf d = floats_get(g + at, t->cols - c) * scale;
                vf v = momentum * floats_get(m + at, t->cols - c) + d;
                floats_put(m + at, v, t->cols - c);
                block[i] = d + momentum * v;
            }
            block_put(n, r, c, block);
        }
}

/* x /= |x|; a matrix of zeros stays one. */
static void newton_normalize(const struct newton *n)
{
    double total = 0.0;
    for (int64_t r = 0; r < n->s.rows; r++) {
        vf sum = {0};
        for (int64_t c = 0; c < n->s.cols; c += LANES)
            sum += vec_load(n->x + r * n->s.stride + c) * vec_load(n->x + r * n->s.stride + c);
        for (int l = 0; l < LANES; l++)
            total += (double)sum[l];
    }
    float by = (float)(1.0 / (sqrt(total) + 1e-7));
    for (size_t i = 0; i < n->s.matrix; i += LANES)
        vec_store(n->x + i, vec_load(n->x + i) * by);
}

static void newton_put(const struct newton *n, const struct device_muon *h, const struct device_matrix *t,
                       float *p, uint16_t *narrowed)
{
    const float keep = 1.0f - h->lr * h->weight_decay, step = h->lr * t->scale;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c += LANES) {
            const int64_t at = r * t->stride + c, left = t->cols - c;
            vf next = keep * floats_get(p + at, left) - step * row_part_get(n, r, c);
            floats_put(p + at, next, left);
            if (narrowed)
                vec_store_bf16(narrowed + at, next, left < LANES ? left : LANES);
        }
}

static void muon_update(const struct device_muon *h, const struct device_matrix *t, float *p, const float *g,
                        float *m, float *room)
{
    struct newton n = {.s = cpu_muon_shape(t), .x = room};
    n.gram = n.x + n.s.matrix;
    n.square = n.gram + n.s.square;
    n.panel = n.square + n.s.square;
    newton_take(&n, h, t, g + t->offset, m + t->offset);
    newton_normalize(&n);
    for (int i = 0; i < NEWTON_STEPS; i++) {
        newton_gram(&n);
        newton_polynomial(&n);
        newton_apply(&n);
    }
    newton_put(&n, h, t, p + t->offset, h->narrowed ? (uint16_t *)h->narrowed + t->offset : NULL);
}

const struct cpu_muon DDP_MUON = {.update = muon_update};
