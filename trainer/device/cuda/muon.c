/* Muon's update, one matrix after the other on the stream: kernels of our own around products of cuBLASLt. Each rank
 * computes the same update for itself, so the products are not tuned. x stays as it lies in the flat arrays: where its
 * columns are fewer, the square matrix is x^T x, and stands behind x. */
#include "trainer/device/cuda/muon.h"

#include "trainer/device/cuda/gemm/gemm.h"
#include "trainer/device/cuda/kernels/muon.h"

enum { NEWTON_STEPS = 5 };
static const float newton_a = 3.4445f, newton_b = -4.7750f, newton_c = 2.0315f;

/* The room of one matrix: its pieces begin at multiples of 256 bytes. */
struct newton {
    enum device_type type;
    int64_t rows, cols, side; /* side: the smaller of both */
    double *squares;          /* sum of the squares of u */
    void *u;                  /* float (rows,cols), before x; then product times x */
    void *x, *gram, *polynomial;
};

static void *room_take(char *room, size_t *at, size_t bytes)
{
    void *piece = room ? room + *at : NULL;
    *at += (bytes + 255) / 256 * 256;
    return piece;
}

/* Returns the bytes of the room. Without a room all pieces are NULL. */
static size_t newton_place(struct newton *n, const struct device_matrix *t, enum device_type type, void *room)
{
    size_t at = 0, whole = (size_t)(t->rows * t->cols), size = device_size(type);
    *n = (struct newton){.type = type, .rows = t->rows, .cols = t->cols};
    n->side = t->rows < t->cols ? t->rows : t->cols;
    size_t square = (size_t)(n->side * n->side) * size;
    n->squares = room_take(room, &at, sizeof(*n->squares));
    n->u = room_take(room, &at, whole * sizeof(float));
    n->x = room_take(room, &at, whole * size);
    n->gram = room_take(room, &at, square);
    n->polynomial = room_take(room, &at, square);
    return at;
}

size_t cuda_muon_bytes(const struct device *d, const struct device_muon *h)
{
    size_t most = 0;
    struct newton n;
    (void)d;
    for (size_t i = 0; i < h->count; i++) {
        size_t bytes = newton_place(&n, &h->matrices[i], h->kept, NULL);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* c (m,n) = a b, of the matrix's type */
static void newton_product(struct cuda_device *c, const struct newton *n, const struct device_product *shape)
{
    struct device_product h = *shape;
    struct err e = {0};
    h.type = h.out = n->type;
    h.untuned = true;
    if (cuda_ready(c) && gemm_product(c->gemm, &h, &e))
        cuda_failed(c, &e);
}

static void newton_combine(struct cuda_device *c, const struct newton *n, void *to, float by_to,
                           const void *from, float by_from, int64_t count)
{
    if (cuda_ready(c))
        cuda_ok(c, cuda_muon_combine(c->stream, n->type, to, by_to, from, by_from, (size_t)count), "muon");
}

static void newton_step(struct cuda_device *c, const struct newton *n)
{
    bool wide = n->rows <= n->cols;
    int64_t side = n->side;
    const struct device_product gram = {.trans_a = !wide,
                                        .trans_b = wide,
                                        .m = side,
                                        .n = side,
                                        .k = wide ? n->cols : n->rows,
                                        .a = n->x,
                                        .b = n->x,
                                        .c = n->gram};
    const struct device_product square = {
        .m = side, .n = side, .k = side, .a = n->gram, .b = n->gram, .c = n->polynomial};
    const struct device_product applied = {.m = n->rows,
                                           .n = n->cols,
                                           .k = side,
                                           .a = wide ? n->polynomial : n->x,
                                           .b = wide ? n->x : n->polynomial,
                                           .c = n->u};
    newton_product(c, n, &gram);
    newton_product(c, n, &square);
    newton_combine(c, n, n->polynomial, newton_c, n->gram, newton_b, side * side);
    newton_product(c, n, &applied);
    newton_combine(c, n, n->x, newton_a, n->u, 1.0f, n->rows * n->cols);
}

static void muon_matrix(struct cuda_device *c, const struct device_muon *h, const struct device_matrix *t,
                        float *p, const float *g, float *m)
{
    struct newton n;
    size_t whole = (size_t)(t->rows * t->cols);
    newton_place(&n, t, h->kept, h->room);
    if (cuda_ready(c))
        cuda_ok(c, cuda_muon_direction(c->stream, h, t, n.u, g, m), "muon");
    if (cuda_ready(c))
        cuda_ok(c, cuda_sum_squares(c->stream, &c->work, n.u, whole, n.squares), "muon");
    if (cuda_ready(c))
        cuda_ok(c, cuda_muon_normalize(c->stream, n.type, n.x, n.u, n.squares, whole), "muon");
    for (int i = 0; i < NEWTON_STEPS; i++)
        newton_step(c, &n);
    if (cuda_ready(c))
        cuda_ok(c, cuda_muon_apply(c->stream, h, t, p, n.x), "muon");
}

void cuda_muon(struct device *d, const struct device_muon *h, float *p, const float *g, float *m)
{
    for (size_t i = 0; i < h->count; i++)
        muon_matrix(cuda_of(d), h, &h->matrices[i], p, g, m);
}
