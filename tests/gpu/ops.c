/* Compares every operation of a GPU except attention with the CPU device, for odd shapes, in float and bf16. Outputs
 * hold NaN before each operation. Nothing may be written after the end of an array, and a second run must give the same
 * bits. Prints the relative error of each operation.
 *
 *     gpu_ops                  calls the kernels directly (ops_launchers.c)
 *     gpu_ops --plugin         opens the device of the plugin; also compares products
 *     gpu_ops --plugin --repeat   runs products 100 times each and compares the bits of their results
 *     gpu_ops --quick          small shapes only
 *
 * Exit 77: no GPU. */
#include "ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "trainer/device/ranges.h"

enum { GUARD = 16, ARRAYS = 24, RESULTS = 12 };

/* One of the two devices that are compared. Arrays that a case makes are freed at its end; its results are compared. */
struct side {
    struct device *d;
    enum device_type mode; /* inputs are rounded to this type, on both sides */
    enum device_type type; /* the type of arrays that may be bf16: float on the CPU, `mode` on the GPU */
    uint32_t random;
    int arrays, results;
    void *array[ARRAYS];
    struct result {
        const char *name;
        float *x;
        int64_t n;
        enum device_type type;
        bool exact;  /* must have the same bits as on the CPU */
        bool newton; /* a result of Newton-Schulz steps, which increase errors */
    } result[RESULTS];
};

static int failures, shifted; /* shifted: by how many elements arrays begin behind a 16-byte boundary */

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "gpu_ops: %s\n", what);
    exit(1);
}

static void *host_alloc(size_t bytes)
{
    void *p = calloc(bytes + 64, 1);
    must(p, "no memory");
    return p;
}

/* ---- arrays of a side */

static uint16_t bf16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float float_from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof(y));
    return y;
}

/* Returns a number between -1 and 1. */
static float random_of(struct side *s)
{
    s->random = s->random * 1664525u + 1013904223u;
    return (float)(s->random >> 8) / 8388608.0f - 1.0f;
}

static void *new_bytes(struct side *s, const void *from, size_t bytes, size_t size)
{
    struct err e;
    size_t before = size <= 4 ? (size_t)shifted * size : 0, behind = GUARD * size;
    uint8_t *host = host_alloc(before + bytes + behind);
    void *p = NULL;
    must(!s->d->ops->alloc(s->d, before + bytes + behind, &p, &e), "no memory on the device");
    must(s->arrays < ARRAYS, "too many arrays");
    memset(host, 0xff, before + bytes + behind); /* all bits set are a NaN */
    if (from)
        memcpy(host + before, from, bytes);
    s->d->ops->upload(s->d, p, host, before + bytes + behind);
    free(host);
    s->array[s->arrays++] = p;
    return (uint8_t *)p + before;
}

static void *new_array(struct side *s, enum device_type type, const float *from, int64_t n)
{
    uint16_t *narrow = host_alloc((size_t)n * sizeof(*narrow));
    for (int64_t i = 0; i < n && from; i++)
        narrow[i] = bf16_from_float(from[i]);
    void *p = new_bytes(s,
                        !from                ? NULL
                        : type == DEVICE_F32 ? (const void *)from
                                             : narrow,
                        (size_t)n * device_size(type), device_size(type));
    free(narrow);
    return p;
}

static void *new_blank(struct side *s, enum device_type type, int64_t n)
{
    return new_array(s, type, NULL, n);
}

/* Returns a new array of n random numbers. rounded: they are rounded to the side's mode. */
static void *new_noise(struct side *s, enum device_type type, bool rounded, float by, int64_t n)
{
    float *x = host_alloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++) {
        x[i] = by * random_of(s);
        if (rounded && s->mode == DEVICE_BF16)
            x[i] = float_from_bf16(bf16_from_float(x[i]));
    }
    void *p = new_array(s, type, x, n);
    free(x);
    return p;
}

static void *new_floats(struct side *s, float by, int64_t n)
{
    return new_noise(s, DEVICE_F32, false, by, n);
}
static void *new_typed(struct side *s, float by, int64_t n)
{
    return new_noise(s, s->type, true, by, n);
}

/* Keeps a result for the comparison, and checks that nothing was written behind its end. */
static void take_result(struct side *s, const char *name, const void *from, enum device_type type, int64_t n)
{
    size_t size = device_size(type), bytes = (size_t)n * size;
    uint8_t *host = host_alloc(bytes + GUARD * size);
    struct result *r = &s->result[s->results++];
    must(s->results <= RESULTS, "too many results");
    s->d->ops->download(s->d, host, from, bytes + GUARD * size);
    *r = (struct result){name, host_alloc((size_t)n * sizeof(float)), n, type, false};
    for (int64_t i = 0; i < n; i++)
        r->x[i] =
            type == DEVICE_F32 ? ((float *)(void *)host)[i] : float_from_bf16(((uint16_t *)(void *)host)[i]);
    for (size_t i = bytes; i < bytes + GUARD * size; i++)
        if (host[i] != 0xff) {
            (void)printf("FAIL %s: written behind its end\n", name);
            failures++;
            break;
        }
    free(host);
}

static void take_exact(struct side *s, const char *name, const float *from, int64_t n)
{
    take_result(s, name, from, DEVICE_F32, n);
    s->result[s->results - 1].exact = true;
}

static void take_doubles(struct side *s, const char *name, const double *from, int64_t n)
{
    double host[4];
    struct result *r = &s->result[s->results++];
    must(s->results <= RESULTS && n <= 4, "too many results");
    s->d->ops->download(s->d, host, from, (size_t)n * sizeof(double));
    *r = (struct result){name, host_alloc((size_t)n * sizeof(float)), n, DEVICE_F32, false};
    for (int64_t i = 0; i < n; i++)
        r->x[i] = (float)host[i];
}

/* ---- the operations */

struct shape {
    int64_t rows, context, width; /* of flat arrays only width, the length; of matrices rows and width */
    int64_t vocab;
    float dropout;
};

static struct device_tokens tokens_of(const struct shape *h)
{
    return (struct device_tokens){h->rows, h->context, h->width};
}

static struct device_dropout dropout_of(struct side *s, const struct shape *h)
{
    int64_t *sample = host_alloc((size_t)h->rows * sizeof(*sample));
    for (int64_t i = 0; i < h->rows; i++)
        sample[i] = 5000000000 + i * 77;
    struct device_dropout d = {.p = h->dropout, .key = 0x0123456789abcdefu};
    d.sample = new_bytes(s, sample, (size_t)h->rows * sizeof(*sample), sizeof(*sample));
    free(sample);
    return d;
}

/* Skewed like real text: half of the tokens are one of three. */
static int32_t *new_labels(struct side *s, int64_t n, int64_t vocab)
{
    int32_t *x = host_alloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++) {
        double r = 0.5 + 0.5 * (double)random_of(s);
        x[i] = (int32_t)(r < 0.5 ? r * 6.0 : (r - 0.5) * 2.0 * (double)(vocab - 1));
        x[i] = x[i] < vocab ? x[i] : (int32_t)(vocab - 1);
    }
    int32_t *p = new_bytes(s, x, (size_t)n * sizeof(*x), 16);
    free(x);
    return p;
}

static void try_flat(struct side *s, const struct shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->width;
    float *x = new_floats(s, 3.0f, n), *y = new_floats(s, 1.0f, n), *a = new_blank(s, DEVICE_F32, n);
    enum device_activation kind = (enum device_activation)(n % 4);
    static const char *const names[] = {"relu", "gelu", "tanh", "gelu-tanh"};
    ops->activate(s->d, kind, a, x, (size_t)n);
    take_result(s, names[kind], a, DEVICE_F32, n);
    ops->activate_grad(s->d, kind, a, y, x, (size_t)n);
    take_result(s, "activate_grad", a, DEVICE_F32, n);
    ops->add(s->d, y, x, (size_t)n);
    take_result(s, "add", y, DEVICE_F32, n);
    ops->scale(s->d, y, (size_t)n, -1.25f);
    take_result(s, "scale", y, DEVICE_F32, n);
    void *narrow = new_blank(s, DEVICE_BF16, n);
    ops->narrow(s->d, narrow, x, (size_t)n);
    take_result(s, "narrow", narrow, DEVICE_BF16, n);
}

static void try_optimizers(struct side *s, const struct shape *h)
{
    const struct device_ops *ops = s->d->ops;
    size_t n = (size_t)h->width;
    float *p = new_floats(s, 1.0f, h->width), *g = new_floats(s, 1.0f, h->width),
          *m = new_floats(s, 0.1f, h->width);
    float *v = new_floats(s, 1.0f, h->width), *scale = new_blank(s, DEVICE_F32, 1);
    double *squares = new_bytes(s, NULL, sizeof(double), sizeof(double));
    ops->sum_squares(s->d, g, n, squares);
    take_doubles(s, "sum_squares", squares, 1);
    ops->clip_scale(s->d, scale, squares, 0.7);
    take_exact(s, "clip_scale", scale, 1);
    /* AdamW's v is an average of squares, so it is never negative */
    ops->activate(s->d, DEVICE_RELU, v, v, n);
    struct device_adamw adamw = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.271f, 0.142625f, scale};
    for (int i = 0; i < 2; i++, adamw.scale = NULL)
        ops->adamw(s->d, &adamw, p, g, m, v, n);
    take_exact(s, "adamw", p, h->width);
    take_exact(s, "adamw m", m, h->width);
    take_exact(s, "adamw v", v, h->width);
    struct device_sgd sgd = {.lr = 0.1f, .weight_decay = 0.01f, .scale = scale};
    ops->sgd(s->d, &sgd, p, g, NULL, n);
    sgd.momentum = 0.9f;
    ops->sgd(s->d, &sgd, p, g, v, n);
    sgd.nesterov = true;
    sgd.scale = NULL;
    ops->sgd(s->d, &sgd, p, g, v, n);
    take_exact(s, "sgd", p, h->width);
    take_exact(s, "sgd v", v, h->width);
}

/* AdamW of two ranges with a gap of 4 floats, one without weight decay. The second moments of the first range lie behind those
 * of the other. The CPU device takes one range after the other. */
static void try_ranges(struct side *s, const struct shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->width, half = n / 2;
    struct device_range items[] = {
        {.offset = 0, .count = (uint64_t)half, .second = (uint64_t)(n - half), .decays = 1},
        {.offset = (uint64_t)half + 4, .count = (uint64_t)(n - half - 4), .second = 0}};
    float *p = new_floats(s, 1.0f, n), *g = new_floats(s, 1.0f, n), *m = new_floats(s, 0.1f, n),
          *v = new_floats(s, 1.0f, n), *x = new_floats(s, 1.0f, n);
    uint16_t *narrow = new_noise(s, DEVICE_BF16, true, 1.0f, n);
    struct device_adamw decays = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.271f, 0.142625f, NULL}, plain = decays;
    plain.weight_decay = 0.0f;
    ops->activate(s->d, DEVICE_RELU, v, v, (size_t)n);
    if (ops->adamw_ranges) {
        struct device_ranges r;
        struct err e;
        must(!device_ranges_open(&r, s->d, items, 2, &e), "no memory on the device");
        ops->adamw_ranges(s->d, &decays, &r, p, g, m, v, n % 3 ? narrow : NULL);
        ops->zero_ranges(s->d, &r, x);
        must(!ops->wait(s->d, &e), e.msg);
        device_ranges_close(&r, s->d);
    } else {
        for (int i = 0; i < 2; i++) {
            size_t at = items[i].offset, count = items[i].count;
            ops->adamw(s->d, i ? &plain : &decays, p + at, g + at, m + at, v + items[i].second, count);
            if (n % 3)
                ops->narrow(s->d, narrow + at, p + at, count);
            ops->zero(s->d, x + at, count * sizeof(float));
        }
    }
    take_exact(s, "adamw_ranges", p, n);
    take_exact(s, "adamw_ranges m", m, n);
    take_exact(s, "adamw_ranges v", v, n);
    take_exact(s, "zero_ranges", x, n);
    take_result(s, "adamw_ranges narrowed", narrow, DEVICE_BF16, n);
    s->result[s->results - 1].exact = true;
}

/* Updates `context` matrices of rows x width that lie side by side. The learning rate is high, so that an error of
 * the update is large compared with the parameters. */
static void try_muon(struct side *s, const struct shape *h)
{
    const struct device_ops *ops = s->d->ops;
    struct device_matrix matrices[3];
    int64_t stride = h->width * h->context, n = h->rows * stride;
    float *p = new_floats(s, 0.1f, n), *g = new_floats(s, 1.0f, n), *m = new_floats(s, 0.1f, n),
          *scale = new_floats(s, 1.0f, 1);
    struct device_muon muon = {.lr = 0.5f,
                               .momentum = 0.95f,
                               .weight_decay = 0.1f,
                               .scale = scale,
                               .kept = s->type,
                               .matrices = matrices,
                               .count = (size_t)h->context};
    for (int64_t i = 0; i < h->context; i++)
        matrices[i] = (struct device_matrix){(size_t)(i * h->width), h->rows, h->width, stride, 1.5f};
    int before = shifted;
    shifted = 0; /* the device needs this workspace with its usual alignment */
    muon.room = new_bytes(s, NULL, ops->muon_bytes(s->d, &muon), 8);
    shifted = before;
    ops->muon(s->d, &muon, p, g, m);
    take_result(s, "muon", p, DEVICE_F32, n);
    s->result[s->results - 1].newton = true;
    take_exact(s, "muon m", m, n);
}

static void try_dense(struct side *s, const struct shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->rows * h->width;
    void *z = new_typed(s, 3.0f, n), *da = new_typed(s, 1.0f, n), *a = new_blank(s, s->type, n);
    float *bias = new_floats(s, 1.0f, h->width), *more = new_floats(s, 1.0f, h->width);
    void *dz = h->rows % 2 ? da : new_blank(s, s->type, n);
    enum device_activation kind = (enum device_activation)((h->rows + h->width) % 4);
    ops->bias_grad(s->d, s->type, more, da, h->rows, h->width);
    take_result(s, "bias_grad", more, DEVICE_F32, h->width);
    ops->bias_activate_grad(s->d, kind, s->type, s->type, dz, a, bias, da, z, h->rows, h->width);
    take_result(s, "bias_activate_grad dz", dz, s->type, n);
    take_result(s, "bias_activate_grad a", a, s->type, n);
    take_result(s, "bias_activate_grad dbias", bias, DEVICE_F32, h->width);
}

/* Shapes of products: (rows,context) times (context,width), and these flags in vocab. */
enum { TRANS_A = 1, TRANS_B = 2, ADDS = 4, FLOAT_OUT = 8, PRODUCT_FLAGS = 16 };

/* A product as the models use it. With bf16 factors, a product that adds has a float result, like a gradient. */
static struct device_product product_of(struct side *s, const struct shape *h)
{
    bool adds = h->vocab & ADDS, wide = adds || h->vocab & FLOAT_OUT;
    int64_t n = h->rows * h->width;
    struct device_product p = {.type = s->type,
                               .out = wide ? DEVICE_F32 : s->type,
                               .trans_a = h->vocab & TRANS_A,
                               .trans_b = h->vocab & TRANS_B,
                               .m = h->rows,
                               .n = h->width,
                               .k = h->context,
                               .beta = adds ? 1.0f : 0.0f};
    p.a = new_typed(s, 1.0f, h->rows * h->context);
    p.b = new_typed(s, 1.0f, h->context * h->width);
    p.c = adds ? new_floats(s, 1.0f, n) : new_blank(s, p.out, n);
    return p;
}

static void try_product(struct side *s, const struct shape *h)
{
    struct device_product p = product_of(s, h);
    static char name[PRODUCT_FLAGS][40];
    char *said = name[h->vocab % PRODUCT_FLAGS];
    (void)snprintf(said, sizeof(name[0]), "product %s%s%s%s", p.trans_a ? "at" : "a",
                   p.trans_b ? " bt" : " b", p.beta != 0.0f ? " adds" : "",
                   h->vocab & FLOAT_OUT ? " float" : "");
    s->d->ops->product(s->d, &p);
    take_result(s, said, p.c, p.out, p.m * p.n);
}

/* Passes the bias also in bf16 if products read bf16. vocab 0: without an activation; 2: with a transposed matrix of
 * weights. */
static void try_linear(struct side *s, const struct shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->rows * h->width, in = h->context;
    void *x = new_typed(s, 1.0f, h->rows * in), *w = new_typed(s, 1.0f, in * h->width);
    float *bias = new_noise(s, DEVICE_F32, true, 1.0f, h->width);
    void *z = new_blank(s, s->type, n), *a = h->vocab == 1 ? new_blank(s, s->type, n) : NULL, *narrow = NULL;
    if (s->type == DEVICE_BF16) {
        narrow = new_blank(s, DEVICE_BF16, h->width);
        ops->narrow(s->d, narrow, bias, (size_t)h->width);
    }
    struct device_linear f = {.type = s->type,
                              .kept = s->type,
                              .trans_w = h->vocab == 2,
                              .rows = h->rows,
                              .in = in,
                              .out = h->width,
                              .x = x,
                              .w = w,
                              .bias = bias,
                              .typed = narrow,
                              .z = z,
                              .kind = DEVICE_GELU_TANH,
                              .a = a};
    ops->linear(s->d, &f);
    take_result(s, "linear z", z, s->type, n);
    if (a)
        take_result(s, "linear a", a, s->type, n);
}

/* Computes the gradient through a layer and the activation before it: in one operation if the device supports it,
 * else in two. */
static void try_activation_grad(struct side *s, const struct shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->rows * h->width, out = h->context;
    void *z = new_typed(s, 3.0f, n), *dy = new_typed(s, 1.0f, h->rows * out),
         *w = new_typed(s, 1.0f, h->width * out);
    void *dz = new_blank(s, s->type, n), *a = new_blank(s, s->type, n);
    bool again = h->vocab == 0 || s->d->host; /* a is computed again */
    float *dbias = new_floats(s, 1.0f, h->width);
    struct device_activation_grad f = {.kind = h->rows % 2 ? DEVICE_GELU_TANH : DEVICE_GELU,
                                       .type = s->type,
                                       .kept = s->type,
                                       .rows = h->rows,
                                       .in = h->width,
                                       .out = out,
                                       .dy = dy,
                                       .w = w,
                                       .z = z,
                                       .dz = dz,
                                       .a = again ? a : NULL};
    bool fits = s->type == DEVICE_BF16 && f.kind == DEVICE_GELU_TANH && h->width % 8 == 0;
    bool done = ops->activation_grad && ops->activation_grad(s->d, &f);
    bool must_do = fits && !shifted && strncmp(s->d->name, "Emulated", 8) == 0;
    must(done ? fits : !must_do, "activation_grad: the device must do this in one operation, or must not");
    if (!done) {
        struct device_product p = {s->type, s->type, false, true, h->rows, h->width, out, dy, w, 0.0f, dz};
        ops->product(s->d, &p);
        ops->bias_activate_grad(s->d, f.kind, s->type, s->type, dz, f.a, dbias, dz, z, h->rows, h->width);
    }
    take_result(s, "activation_grad dz", dz, s->type, n);
    if (h->vocab == 0)
        take_result(s, "activation_grad a", a, s->type, n);
}

/* Computes the gradients of a layer's weights and bias: in one operation if the device supports it, else in two. */
static void try_weight_grad(struct side *s, const struct shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t in = h->context, out = h->width;
    struct device_weight_grad f = {.type = s->type,
                                   .rows = h->rows,
                                   .in = in,
                                   .out = out,
                                   .x = new_typed(s, 1.0f, h->rows * in),
                                   .dy = new_typed(s, 1.0f, h->rows * out),
                                   .dw = new_floats(s, 1.0f, in * out),
                                   .dbias = new_floats(s, 1.0f, out)};
    bool done = ops->weight_grad && ops->weight_grad(s->d, &f);
    bool must_do = s->type == DEVICE_BF16 && strncmp(s->d->name, "Emulated", 8) == 0;
    must(done ? s->type == DEVICE_BF16 : !must_do,
         "weight_grad: the device must do this in one operation, or must not");
    if (!done) {
        struct device_product p = {s->type, DEVICE_F32, true, false, in, out, h->rows, f.x, f.dy, 1.0f, f.dw};
        ops->product(s->d, &p);
        ops->bias_grad(s->d, s->type, f.dbias, f.dy, h->rows, out);
    }
    take_result(s, "weight_grad dw", f.dw, DEVICE_F32, in * out);
    take_result(s, "weight_grad dbias", f.dbias, DEVICE_F32, out);
}

/* Tests the kernel that follows a layer's product. Only the device of ops_launchers.c can call it by itself. */
static void try_bias_activate(struct side *s, const struct shape *h)
{
    int64_t n = h->rows * h->width;
    void *z = new_typed(s, 3.0f, n), *a = new_blank(s, s->type, n);
    float *bias = new_floats(s, 1.0f, h->width);
    enum device_activation kind = (enum device_activation)(h->width % 4);
    if (s->d->host) {
        for (int64_t i = 0; i < h->rows; i++)
            s->d->ops->add(s->d, (float *)z + i * h->width, bias, (size_t)h->width);
        s->d->ops->activate(s->d, kind, a, z, (size_t)n);
    } else {
        ops_bias_activate(kind, s->type, a, z, bias, h->rows, h->width);
    }
    take_result(s, "bias_activate z", z, s->type, n);
    take_result(s, "bias_activate a", a, s->type, n);
}

static void try_norm(struct side *s, const struct shape *h)
{
    int64_t t = h->rows * h->context, n = t * h->width, w = h->width;
    struct device_norm f = {.n = tokens_of(h), .dropout = dropout_of(s, h), .type = s->type, .kept = s->type};
    float *residual = new_floats(s, 2.0f, n);
    f.residual = residual;
    f.delta = new_typed(s, 1.0f, n);
    f.bias = new_floats(s, 1.0f, w);
    f.gain = new_floats(s, 1.0f, w);
    f.shift = new_floats(s, 1.0f, w);
    f.x = h->rows % 2 ? residual : new_blank(s, DEVICE_F32, n);
    f.stats = new_blank(s, DEVICE_F32, 2 * t);
    f.y = new_blank(s, s->type, n);
    s->d->ops->norm(s->d, &f);
    take_result(s, "norm x", f.x, DEVICE_F32, n);
    take_result(s, "norm y", f.y, s->type, n);
    take_result(s, "norm stats", f.stats, DEVICE_F32, 2 * t);
    struct device_norm_grad b = {.n = f.n, .dropout = f.dropout, .x = f.x, .stats = f.stats, .gain = f.gain};
    b.type = b.kept = s->type;
    b.dy = new_typed(s, 1.0f, n);
    b.set = h->context % 3 == 1;
    b.dx = b.set ? new_blank(s, s->type, n) : new_typed(s, 1.0f, n);
    b.dgain = new_floats(s, 1.0f, w);
    b.dshift = new_floats(s, 1.0f, w);
    b.dbias = new_floats(s, 1.0f, w);
    b.ddelta = new_blank(s, s->type, n);
    s->d->ops->norm_grad(s->d, &b);
    take_result(s, "norm_grad dx", b.dx, s->type, n);
    take_result(s, "norm_grad ddelta", b.ddelta, s->type, n);
    take_result(s, "norm_grad dgain", b.dgain, DEVICE_F32, w);
    take_result(s, "norm_grad dshift", b.dshift, DEVICE_F32, w);
    take_result(s, "norm_grad dbias", b.dbias, DEVICE_F32, w);
    f.delta = NULL;
    f.residual = f.x;
    b.dbias = NULL;
    b.ddelta = NULL;
    s->d->ops->norm(s->d, &f);
    s->d->ops->norm_grad(s->d, &b);
    take_result(s, "norm y, no delta", f.y, s->type, n);
    take_result(s, "norm_grad dx, no delta", b.dx, s->type, n);
}

static void try_embed(struct side *s, const struct shape *h)
{
    int64_t t = h->rows * h->context, n = t * h->width;
    struct device_embedding f = {.n = tokens_of(h), .vocab = h->vocab, .dropout = dropout_of(s, h)};
    f.token = new_labels(s, t, h->vocab);
    float *wte = new_floats(s, 1.0f, h->vocab * h->width), *wpe = new_floats(s, 1.0f, h->context * h->width);
    float *x = new_blank(s, DEVICE_F32, n);
    s->d->ops->embed(s->d, &f, wte, wpe, x);
    take_result(s, "embed", x, DEVICE_F32, n);
    void *dx = new_typed(s, 1.0f, n);
    f.kept = s->type;
    s->d->ops->embed_grad(s->d, &f, wte, wpe, dx);
    take_result(s, "embed_grad dwte", wte, DEVICE_F32, h->vocab * h->width);
    /* a sum of numbers that were rounded to this type, so its error is as large */
    s->result[s->results - 1].type = s->type;
    take_result(s, "embed_grad dwpe", wpe, DEVICE_F32, h->context * h->width);
    take_result(s, "embed_grad dx", dx, s->type, n);
}

static void try_classes(struct side *s, const struct shape *h)
{
    int64_t stride = h->context, n = h->rows * stride; /* shape.context is the stride here */
    struct device_tally zero = {0};
    struct device_classes c = {.type = s->type, .kept = s->type, .rows = h->rows, .classes = h->width};
    c.stride = stride;
    c.label = new_labels(s, h->rows, h->width);
    c.x = new_typed(s, 8.0f, n);
    c.dx = h->rows % 2 ? c.x : new_blank(s, s->type, n);
    c.scale = 1.0f / (float)h->rows;
    c.weight = 0.5;
    c.tally = new_bytes(s, &zero, sizeof(zero), sizeof(double));
    s->d->ops->cross_entropy(s->d, &c);
    take_result(s, "cross_entropy dx", c.dx, s->type, n);
    take_doubles(s, "cross_entropy tally", &c.tally->loss, 2);
    float *mean = new_blank(s, DEVICE_F32, 1);
    s->d->ops->tally_mean(s->d, mean, c.tally, (double)h->rows);
    take_result(s, "tally_mean", mean, DEVICE_F32, 1);
    float *x = new_floats(s, 1.0f, n), *y = new_floats(s, 1.0f, n), *dx = new_blank(s, DEVICE_F32, n);
    s->d->ops->mse(s->d, dx, x, y, h->rows, stride, 0.25f, c.tally);
    take_result(s, "mse dx", dx, DEVICE_F32, n);
    take_doubles(s, "mse tally", &c.tally->loss, 2);
}

static void try_digest(struct side *s, const struct shape *h)
{
    int64_t blocks = (h->width + DIGEST_BLOCK - 1) / DIGEST_BLOCK;
    float *x = host_alloc((size_t)h->width * sizeof(float));
    uint64_t *got = host_alloc((size_t)blocks * sizeof(*got));
    for (int64_t i = 0; i < h->width; i++)
        x[i] = random_of(s);
    int before = shifted;
    shifted = 0;
    float *on = new_bytes(s, x, (size_t)h->width * sizeof(float), sizeof(float));
    shifted = before;
    uint64_t *sums = new_bytes(s, NULL, (size_t)blocks * sizeof(*sums), sizeof(*sums));
    if (s->d->ops->digest) {
        s->d->ops->digest(s->d, sums, on, (size_t)h->width);
        s->d->ops->download(s->d, got, sums, (size_t)blocks * sizeof(*got));
        for (int64_t i = 0; i < blocks; i++) {
            int64_t left = h->width - i * DIGEST_BLOCK;
            if (got[i] !=
                digest64_sum(x + i * DIGEST_BLOCK, (size_t)(left < DIGEST_BLOCK ? left : DIGEST_BLOCK))) {
                (void)printf("FAIL digest: block %lld\n", (long long)i);
                failures++;
            }
        }
    }
    free(x);
    free(got);
}

/* ---- comparing */

/* Returns the largest allowed relative error. The devices add in different orders and use different math libraries,
 * so results differ slightly, and a value may be rounded to the next bf16 number. */
static double limit_of(const struct side *s, const struct result *r)
{
    if (r->exact)
        return 0.0;
    if (r->newton)
        return s->mode == DEVICE_BF16 ? 4e-2 : 1e-5;
    return r->type == DEVICE_BF16 ? 4e-3 : 2e-6;
}

static void compare_results(const struct side *cpu, const struct side *gpu, const char *shape)
{
    must(cpu->results == gpu->results, "other results");
    for (int i = 0; i < cpu->results; i++) {
        const struct result *want = &cpu->result[i], *got = &gpu->result[i];
        double error = 0.0, whole = 0.0;
        for (int64_t j = 0; j < want->n; j++) {
            error += pow((double)want->x[j] - (double)got->x[j], 2);
            whole += pow((double)want->x[j], 2);
        }
        error = sqrt(error / (whole + 1e-30));
        bool ok = error <= limit_of(gpu, got);
        (void)printf("%s%s: %s %s %.1e\n", ok ? "" : "FAIL ", want->name,
                     cpu->mode == DEVICE_BF16 ? "bf16" : "float", shape, error);
        failures += !ok;
    }
}

static void same_bits(const struct side *one, const struct side *two, const char *shape)
{
    for (int i = 0; i < one->results; i++)
        if (memcmp(one->result[i].x, two->result[i].x, (size_t)one->result[i].n * sizeof(float)) != 0) {
            (void)printf("FAIL %s: %s: other bits the second time\n", one->result[i].name, shape);
            failures++;
        }
}

static void side_release(struct side *s)
{
    struct err e;
    must(!s->d->ops->wait(s->d, &e), "the device failed");
    for (int i = 0; i < s->results; i++)
        free(s->result[i].x);
    for (int i = 0; i < s->arrays; i++)
        s->d->ops->free(s->d, s->array[i]);
    s->arrays = s->results = 0;
}

typedef void try_fn(struct side *s, const struct shape *h);

static void try_all(struct device *cpu, struct device *gpu, try_fn *fn, const struct shape *h)
{
    char name[96];
    (void)snprintf(name, sizeof(name), "(%lld,%lld,%lld) vocab %lld p %.1f at %d", (long long)h->rows,
                   (long long)h->context, (long long)h->width, (long long)h->vocab, (double)h->dropout,
                   shifted);
    /* enough for operations without tokens */
    struct device_sizes sizes = {{1, 1, 16}, 1, 2, 1, DEVICE_F32, false};
    if (h->vocab > 0 && fn != try_product && fn != try_activation_grad)
        sizes = (struct device_sizes){tokens_of(h), h->width, h->vocab, 1, DEVICE_F32, false};
    struct err e;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        enum device_type mode = bf16 ? DEVICE_BF16 : DEVICE_F32;
        struct side sides[3] = {{.d = cpu, .mode = mode}, {.d = gpu, .mode = mode}, {.d = gpu, .mode = mode}};
        for (int i = 0; i < 3; i++) {
            sizes.type = sides[i].type = i == 0 ? DEVICE_F32 : mode;
            sides[i].random = (uint32_t)(h->rows * 7 + h->width);
            must(!sides[i].d->ops->reserve(sides[i].d, &sizes, &e), "no room");
            fn(&sides[i], h);
            must(!sides[i].d->ops->wait(sides[i].d, &e), e.msg);
        }
        compare_results(&sides[0], &sides[1], name);
        same_bits(&sides[1], &sides[2], name);
        for (int i = 0; i < 3; i++)
            side_release(&sides[i]);
    }
}

static const struct operation_case {
    try_fn *fn;
    struct shape h;
    bool large;
} cases[] = {
    {try_flat, {.width = 1}, false},
    {try_flat, {.width = 1026}, false},
    {try_flat, {.width = 4099}, false},
    {try_flat, {.width = 65536}, false},
    {try_flat, {.width = 3000001}, true},
    {try_optimizers, {.width = 3}, false},
    {try_optimizers, {.width = 70001}, false},
    {try_optimizers, {.width = 5000002}, true},
    {try_ranges, {.width = 10}, false},
    {try_ranges, {.width = 20000}, false}, /* multiples of 16 bytes, not of a block */
    {try_ranges, {.width = 16392}, false}, /* not narrowed */
    {try_ranges, {.width = 70001}, false},
    {try_ranges, {.width = 5000000}, true},
    {try_muon, {.rows = 1, .context = 1, .width = 1}, false},
    {try_muon, {.rows = 1, .context = 1, .width = 50}, false},
    {try_muon, {.rows = 65, .context = 1, .width = 7}, false},
    {try_muon, {.rows = 24, .context = 3, .width = 40}, false},
    {try_muon, {.rows = 64, .context = 3, .width = 64}, false},
    {try_muon, {.rows = 96, .context = 1, .width = 33}, false},
    {try_muon, {.rows = 768, .context = 3, .width = 768}, true},
    {try_muon, {.rows = 3072, .context = 1, .width = 768}, true},
    {try_digest, {.width = 5}, false},
    {try_digest, {.width = 4097}, false},
    {try_dense, {.rows = 1, .width = 1}, false},
    {try_dense, {.rows = 7, .width = 65}, false},
    {try_dense, {.rows = 130, .width = 264}, false},
    {try_dense, {.rows = 131, .width = 48}, false},
    {try_dense, {.rows = 257, .width = 10}, false},
    {try_dense, {.rows = 8192, .width = 6400}, true},
    {try_linear, {.rows = 7, .context = 5, .width = 20, .vocab = 1}, false},
    {try_linear, {.rows = 65, .context = 31, .width = 50}, false},
    {try_linear, {.rows = 33, .context = 24, .width = 96, .vocab = 2}, false},
    {try_linear, {.rows = 65, .context = 31, .width = 50, .vocab = 2}, false},
    {try_linear, {.rows = 4096, .context = 768, .width = 3072, .vocab = 1}, true},
    {try_linear, {.rows = 33, .context = 24, .width = 96}, false},
    {try_linear, {.rows = 33, .context = 24, .width = 96, .vocab = 1}, false},
    {try_activation_grad, {.rows = 7, .context = 5, .width = 20}, false},
    {try_activation_grad, {.rows = 33, .context = 24, .width = 96}, false},
    {try_activation_grad, {.rows = 32, .context = 24, .width = 96}, false},
    {try_activation_grad, {.rows = 33, .context = 24, .width = 96, .vocab = 1}, false},
    {try_activation_grad, {.rows = 32, .context = 24, .width = 97, .vocab = 1}, false},
    {try_activation_grad, {.rows = 4095, .context = 768, .width = 3072}, true},
    {try_weight_grad, {.rows = 7, .context = 5, .width = 20}, false},
    {try_weight_grad, {.rows = 33, .context = 24, .width = 96}, false},
    {try_weight_grad, {.rows = 130, .context = 33, .width = 51}, false},
    {try_weight_grad, {.rows = 1, .context = 16, .width = 8}, false},
    {try_weight_grad, {.rows = 32768, .context = 768, .width = 2304}, true},
    {try_bias_activate, {.rows = 9, .width = 65}, false},
    {try_bias_activate, {.rows = 130, .width = 264}, false},
    {try_bias_activate, {.rows = 70, .width = 50}, false},
    {try_bias_activate, {.rows = 70, .width = 51}, false},
    {try_norm, {1, 1, 1, 1, 0.0f}, false},
    {try_norm, {2, 7, 48, 1, 0.1f}, false},
    {try_norm, {1, 129, 50, 1, 0.5f}, false},
    {try_norm, {2, 600, 136, 1, 0.0f}, false},
    {try_norm, {2, 600, 50, 1, 0.1f}, false},
    {try_norm, {2, 3, 768, 1, 0.0f}, false},
    {try_norm, {1, 5, 1600, 1, 0.2f}, false},
    {try_norm, {1, 2, 6400, 1, 0.1f}, false},
    {try_norm, {2, 1, 6403, 1, 0.0f}, false},
    /* several rows for each block of threads, kept in memory */
    {try_norm, {1, 109, 4098, 1, 0.1f}, false},
    {try_norm, {1, 2, 20000, 1, 0.1f}, false},
    {try_norm, {32, 1024, 768, 1, 0.1f}, true},
    {try_embed, {1, 1, 1, 1, 0.0f}, false},
    {try_embed, {3, 129, 48, 65, 0.1f}, false},
    {try_embed, {5, 700, 12, 50257, 0.0f}, false},
    {try_embed, {2, 300, 30, 2, 0.0f}, false},
    {try_embed, {2, 7, 800, 300, 0.3f}, false},
    {try_embed, {2, 100, 4, 70000, 0.0f}, false},
    {try_embed, {32, 1024, 768, 50257, 0.1f}, true},
    {try_classes, {.rows = 1, .context = 1, .width = 1}, false},
    {try_classes, {.rows = 7, .context = 65, .width = 65}, false},
    {try_classes, {.rows = 8, .context = 72, .width = 65}, false},
    {try_classes, {.rows = 33, .context = 1500, .width = 1499}, false},
    {try_classes, {.rows = 3, .context = 50257, .width = 50257}, false},
    {try_classes, {.rows = 2, .context = 50304, .width = 50257}, false},
    {try_classes, {.rows = 5000, .context = 16, .width = 15}, false}, /* several equal largest logits */
    {try_classes, {.rows = 4096, .context = 50304, .width = 50257}, true},
};

/* Returns how many alignments of the arrays to try. Rows whose length is not a multiple of 4 are unaligned in any
 * case. */
static int shifts_of(const struct operation_case *c)
{
    int64_t length = c->fn == try_classes ? c->h.context : c->h.width;
    return c->large || (c->h.rows > 0 && length % 4 != 0) ? 1 : 2;
}

/* Returns whether the device has this operation. Products are only in the plugin; the kernel that follows a product
 * can be called only in the other device. */
static bool fits_device(try_fn *fn, bool plugin)
{
    return plugin ? fn != try_bias_activate
                  : fn != try_product && fn != try_linear && fn != try_activation_grad &&
                        fn != try_weight_grad && fn != try_muon;
}

/* Sizes of products: lines of whole 16 bytes in bf16 and not, a single row, and those of a GPT (the last). */
static const struct shape product_shapes[] = {
    {.rows = 1, .context = 1, .width = 1},        {.rows = 64, .context = 40, .width = 96},
    {.rows = 1, .context = 768, .width = 64},     {.rows = 33, .context = 27, .width = 51},
    {.rows = 64, .context = 37, .width = 96},     {.rows = 30, .context = 64, .width = 20},
    {.rows = 768, .context = 4096, .width = 768},
};
#define PRODUCT_SHAPES (sizeof(product_shapes) / sizeof(product_shapes[0]))

/* Every way to multiply: each transposition, results that are set or added to, in float and in the factors' type. */
static void try_products(struct device *cpu, struct device *gpu, bool quick)
{
    for (size_t i = 0; i < PRODUCT_SHAPES - (quick ? 1 : 0); i++)
        for (shifted = 0; shifted < (i < 3 ? 2 : 1); shifted++)
            for (int flags = 0; flags < PRODUCT_FLAGS; flags++) {
                struct shape h = product_shapes[i];
                h.vocab = flags;
                if ((flags & ADDS) && (flags & FLOAT_OUT))
                    continue; /* a product that adds has a float result in any case */
                try_all(cpu, gpu, try_product, &h);
            }
    shifted = 0;
}

enum { REPEATS = 100 };

static void tell_repeats(const char *name, const struct shape *h, int other)
{
    (void)printf("%srepeat: %s (%lld,%lld,%lld) %.1e\n", other ? "FAIL " : "", name, (long long)h->rows,
                 (long long)h->context, (long long)h->width, (double)other);
    failures += other > 0;
}

/* The same for the gradient of a layer (context,width) from `rows` rows, whose bias's sums are part of the product. */
static void repeat_weight_grad(struct device *gpu, const struct shape *h)
{
    struct side s = {.d = gpu, .mode = DEVICE_BF16, .type = DEVICE_BF16, .random = 5};
    size_t bytes[2] = {(size_t)(h->context * h->width) * sizeof(float), (size_t)h->width * sizeof(float)};
    void *first[2], *again[2], *to[2];
    struct err e;
    int other = 0;
    for (int i = 0; i < 2; i++) {
        first[i] = host_alloc(bytes[i]);
        again[i] = host_alloc(bytes[i]);
        to[i] = new_bytes(&s, NULL, bytes[i], 16);
    }
    struct device_weight_grad f = {.type = DEVICE_BF16,
                                   .rows = h->rows,
                                   .in = h->context,
                                   .out = h->width,
                                   .x = new_typed(&s, 1.0f, h->rows * h->context),
                                   .dy = new_typed(&s, 1.0f, h->rows * h->width),
                                   .dw = to[0],
                                   .dbias = to[1]};
    bool done = true;
    for (int r = 0; done && r < REPEATS; r++) {
        for (int i = 0; i < 2; i++)
            gpu->ops->zero(gpu, to[i], bytes[i]);
        done = gpu->ops->weight_grad(gpu, &f);
        for (int i = 0; i < 2; i++) {
            gpu->ops->download(gpu, r ? again[i] : first[i], to[i], bytes[i]);
            other += r && memcmp(first[i], again[i], bytes[i]) != 0;
        }
    }
    tell_repeats(done ? "weight_grad" : "weight_grad apart", h, other);
    must(!gpu->ops->wait(gpu, &e), e.msg);
    side_release(&s);
    for (int i = 0; i < 2; i++) {
        free(first[i]);
        free(again[i]);
    }
}

/* Runs each product of these sizes REPEATS times and compares the bits. An algorithm that splits a sum must add the parts
 * in the same order every time, also on a GPU that is busy with other blocks of the same product. */
static void try_repeats(struct device *cpu, struct device *gpu, bool quick)
{
    static const struct shape quick_shapes[] = {{.rows = 48, .context = 640, .width = 56}};
    static const struct shape shapes[] = {{.rows = 768, .context = 16384, .width = 768},
                                          {.rows = 768, .context = 32768, .width = 3072},
                                          {.rows = 3072, .context = 32768, .width = 768},
                                          {.rows = 1600, .context = 8192, .width = 1600},
                                          {.rows = 50304, .context = 2048, .width = 768}};
    const struct shape *list = quick ? quick_shapes : shapes;
    size_t count =
        quick ? sizeof(quick_shapes) / sizeof(quick_shapes[0]) : sizeof(shapes) / sizeof(shapes[0]);
    struct err e;
    (void)cpu;
    for (size_t i = 0; i < count; i++)
        for (int flags = 0; flags < FLOAT_OUT; flags++) {
            struct shape h = list[i];
            struct side s = {.d = gpu, .mode = DEVICE_BF16, .type = DEVICE_BF16, .random = 5};
            h.vocab = flags;
            struct device_product p = product_of(&s, &h);
            size_t bytes = (size_t)(p.m * p.n) * device_size(p.out);
            void *before = new_bytes(&s, NULL, bytes, 16), *first = host_alloc(bytes),
                 *again = host_alloc(bytes);
            int other = 0;
            gpu->ops->copy(gpu, before, p.c, bytes);
            for (int r = 0; r < REPEATS; r++) {
                gpu->ops->copy(gpu, p.c, before, bytes);
                gpu->ops->product(gpu, &p);
                gpu->ops->download(gpu, r ? again : first, p.c, bytes);
                other += r && memcmp(first, again, bytes) != 0;
            }
            static char name[FLOAT_OUT][24];
            (void)snprintf(name[flags], sizeof(name[0]), "%s%s%s", p.trans_a ? "at" : "a",
                           p.trans_b ? " bt" : " b", p.beta != 0.0f ? " adds" : "");
            tell_repeats(name[flags], &h, other);
            must(!gpu->ops->wait(gpu, &e), e.msg);
            side_release(&s);
            free(first);
            free(again);
        }
}

int main(int argc, char **argv)
{
    struct device *cpu = NULL, *gpu = NULL;
    struct err e = {0};
    bool plugin = false, quick = false, repeat = false;
    for (int i = 1; i < argc; i++) {
        plugin = plugin || strcmp(argv[i], "--plugin") == 0;
        quick = quick || strcmp(argv[i], "--quick") == 0;
        repeat = repeat || strcmp(argv[i], "--repeat") == 0;
    }
    must(plugin || !repeat, "--repeat needs --plugin");
    must(!device_open(&cpu, DEVICE_CPU, 0, 1, 1, &e), "no CPU device");
    enum err_code code = plugin ? device_open(&gpu, DEVICE_CUDA, 0, 1, 1, &e) : ops_launchers_open(&gpu, &e);
    if (code) {
        (void)fprintf(stderr, "gpu_ops: %s\n", e.msg);
        return code == ERR_UNAVAILABLE ? 77 : 1;
    }
    if (repeat) {
        static const struct shape quick_layer = {.rows = 640, .context = 48, .width = 56},
                                  layer = {.rows = 32768, .context = 768, .width = 3072};
        try_repeats(cpu, gpu, quick);
        repeat_weight_grad(gpu, quick ? &quick_layer : &layer);
    }
    if (plugin && !repeat)
        try_products(cpu, gpu, quick);
    for (size_t i = 0; !repeat && i < sizeof(cases) / sizeof(cases[0]); i++)
        for (shifted = 0; shifted < shifts_of(&cases[i]) && !(quick && cases[i].large); shifted++) {
            if (!fits_device(cases[i].fn, plugin))
                break;
            try_all(cpu, gpu, cases[i].fn, &cases[i].h);
        }
    device_close(gpu);
    device_close(cpu);
    if (failures)
        (void)fprintf(stderr, "gpu_ops: %d failures\n", failures);
    else
        (void)printf("all results agree\n"); /* without this line, the output is not whole */
    return failures ? 1 : 0;
}
