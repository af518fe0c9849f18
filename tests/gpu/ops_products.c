/* Products and the operations around them, which only the plugin has: see ops.h. */
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops_side.h"

/* Shapes of products: (rows,context) times (context,width), and these flags in way. */
enum { TRANS_A = 1, TRANS_B = 2, ADDS = 4, FLOAT_OUT = 8, PRODUCT_FLAGS = 16 };

/* A product as the models use it. With bf16 factors, a product that adds has a float result, like a gradient. */
static struct device_product product_of(struct side *s, const struct ops_shape *h)
{
    bool adds = h->way & ADDS, wide = adds || h->way & FLOAT_OUT;
    int64_t n = h->rows * h->width;
    struct device_product p = {.type = s->type,
                               .out = wide ? DEVICE_F32 : s->type,
                               .trans_a = h->way & TRANS_A,
                               .trans_b = h->way & TRANS_B,
                               .m = h->rows,
                               .n = h->width,
                               .k = h->context,
                               .beta = adds ? 1.0f : 0.0f};
    p.a = side_new_typed(s, 1.0f, h->rows * h->context);
    p.b = side_new_typed(s, 1.0f, h->context * h->width);
    p.c = adds ? side_new_floats(s, 1.0f, n) : side_new_blank(s, p.out, n);
    return p;
}

static void try_product(struct side *s, const struct ops_shape *h)
{
    struct device_product p = product_of(s, h);
    static char name[PRODUCT_FLAGS][40];
    char *said = name[h->way % PRODUCT_FLAGS];
    (void)snprintf(said, sizeof(name[0]), "product %s%s%s%s", p.trans_a ? "at" : "a",
                   p.trans_b ? " bt" : " b", p.beta != 0.0f ? " adds" : "",
                   h->way & FLOAT_OUT ? " float" : "");
    s->d->ops->product(s->d, &p);
    side_take_sum(s, said, p.c, p.out, p.m * p.n, p.k);
}

/* Passes the bias also in bf16 if products read bf16. way 0: without an activation; 2: with a transposed matrix of
 * weights. */
static void try_linear(struct side *s, const struct ops_shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->rows * h->width, in = h->context;
    void *x = side_new_typed(s, 1.0f, h->rows * in), *w = side_new_typed(s, 1.0f, in * h->width);
    float *bias = side_new_noise(s, DEVICE_F32, true, 1.0f, h->width);
    void *z = side_new_blank(s, s->type, n), *a = h->way == 1 ? side_new_blank(s, s->type, n) : NULL,
         *narrow = NULL;
    if (s->type == DEVICE_BF16) {
        narrow = side_new_blank(s, DEVICE_BF16, h->width);
        ops->narrow(s->d, narrow, bias, (size_t)h->width);
    }
    struct device_linear f = {.type = s->type,
                              .kept = s->type,
                              .trans_w = h->way == 2,
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
    side_take_sum(s, "linear z", z, s->type, n, in);
    if (a)
        side_take_sum(s, "linear a", a, s->type, n, in);
}

/* Computes the gradient through a layer and the activation before it: in one operation if the device supports it,
 * else in two. */
static void try_activation_grad(struct side *s, const struct ops_shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->rows * h->width, out = h->context;
    void *z = side_new_typed(s, 3.0f, n), *dy = side_new_typed(s, 1.0f, h->rows * out),
         *w = side_new_typed(s, 1.0f, h->width * out);
    void *dz = side_new_blank(s, s->type, n), *a = side_new_blank(s, s->type, n);
    bool again = h->way == 0 || s->d->host; /* a is computed again */
    float *dbias = side_new_floats(s, 1.0f, h->width);
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
    bool must_do = fits && !s->shifted && strncmp(s->d->name, "Emulated", 8) == 0;
    side_must(done ? fits : !must_do,
              "activation_grad: the device must do this in one operation, or must not");
    if (!done) {
        struct device_product p = {s->type, s->type, false, true, h->rows, h->width, out, dy, w, 0.0f, dz};
        ops->product(s->d, &p);
        ops->bias_activate_grad(s->d, f.kind, s->type, s->type, dz, f.a, dbias, dz, z, h->rows, h->width);
    }
    side_take_sum(s, "activation_grad dz", dz, s->type, n, out);
    if (h->way == 0)
        side_take_sum(s, "activation_grad a", a, s->type, n, out);
}

/* Computes the gradients of a layer's weights and bias: in one operation if the device supports it, else in two. */
static void try_weight_grad(struct side *s, const struct ops_shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t in = h->context, out = h->width;
    struct device_weight_grad f = {.type = s->type,
                                   .rows = h->rows,
                                   .in = in,
                                   .out = out,
                                   .x = side_new_typed(s, 1.0f, h->rows * in),
                                   .dy = side_new_typed(s, 1.0f, h->rows * out),
                                   .dw = side_new_floats(s, 1.0f, in * out),
                                   .dbias = side_new_floats(s, 1.0f, out)};
    bool done = ops->weight_grad && ops->weight_grad(s->d, &f);
    bool must_do = s->type == DEVICE_BF16 && strncmp(s->d->name, "Emulated", 8) == 0;
    side_must(done ? s->type == DEVICE_BF16 : !must_do,
              "weight_grad: the device must do this in one operation, or must not");
    if (!done) {
        struct device_product p = {s->type, DEVICE_F32, true, false, in, out, h->rows, f.x, f.dy, 1.0f, f.dw};
        ops->product(s->d, &p);
        ops->bias_grad(s->d, s->type, f.dbias, f.dy, h->rows, out);
    }
    side_take_sum(s, "weight_grad dw", f.dw, DEVICE_F32, in * out, f.rows);
    side_take_sum(s, "weight_grad dbias", f.dbias, DEVICE_F32, out, f.rows);
}

static const struct ops_case layer_cases[] = {
    {try_linear, {.rows = 7, .context = 5, .width = 20, .way = 1}, false},
    {try_linear, {.rows = 65, .context = 31, .width = 50}, false},
    {try_linear, {.rows = 33, .context = 24, .width = 96, .way = 2}, false},
    {try_linear, {.rows = 65, .context = 31, .width = 50, .way = 2}, false},
    {try_linear, {.rows = 4096, .context = 768, .width = 3072, .way = 1}, true},
    {try_linear, {.rows = 33, .context = 24, .width = 96}, false},
    {try_linear, {.rows = 33, .context = 24, .width = 96, .way = 1}, false},
    {try_activation_grad, {.rows = 7, .context = 5, .width = 20}, false},
    {try_activation_grad, {.rows = 33, .context = 24, .width = 96}, false},
    {try_activation_grad, {.rows = 32, .context = 24, .width = 96}, false},
    {try_activation_grad, {.rows = 33, .context = 24, .width = 96, .way = 1}, false},
    {try_activation_grad, {.rows = 32, .context = 24, .width = 97, .way = 1}, false},
    {try_activation_grad, {.rows = 4095, .context = 768, .width = 3072}, true},
    {try_weight_grad, {.rows = 7, .context = 5, .width = 20}, false},
    {try_weight_grad, {.rows = 33, .context = 24, .width = 96}, false},
    {try_weight_grad, {.rows = 130, .context = 33, .width = 51}, false},
    {try_weight_grad, {.rows = 1, .context = 16, .width = 8}, false},
    {try_weight_grad, {.rows = 32768, .context = 768, .width = 2304}, true},
};
#define LAYER_CASES (sizeof(layer_cases) / sizeof(layer_cases[0]))

/* Sizes of products: lines of whole 16 bytes in bf16 and not, a single row, and those of a GPT (the last). */
static const struct ops_shape product_shapes[] = {
    {.rows = 1, .context = 1, .width = 1},        {.rows = 64, .context = 40, .width = 96},
    {.rows = 1, .context = 768, .width = 64},     {.rows = 33, .context = 27, .width = 51},
    {.rows = 64, .context = 37, .width = 96},     {.rows = 30, .context = 64, .width = 20},
    {.rows = 768, .context = 4096, .width = 768},
};
#define PRODUCT_SHAPES (sizeof(product_shapes) / sizeof(product_shapes[0]))

/* Every way to multiply: each transposition, results that are set or added to, in float and in the factors' type. */
static int try_products(struct device *cpu, struct device *gpu, bool quick)
{
    int failures = 0;
    for (size_t i = 0; i < PRODUCT_SHAPES - (quick ? 1 : 0); i++)
        for (int shifted = 0; shifted < (i < 3 ? 2 : 1); shifted++)
            for (int flags = 0; flags < PRODUCT_FLAGS; flags++) {
                struct ops_shape h = product_shapes[i];
                h.way = flags;
                if ((flags & ADDS) && (flags & FLOAT_OUT))
                    continue; /* a product that adds has a float result in any case */
                failures += side_try(cpu, gpu, try_product, &h, shifted);
            }
    return failures;
}

int ops_products(struct device *cpu, struct device *gpu, bool quick)
{
    int failures = try_products(cpu, gpu, quick);
    for (size_t i = 0; i < LAYER_CASES; i++)
        if (!quick || !layer_cases[i].large)
            failures += side_try_case(cpu, gpu, &layer_cases[i], layer_cases[i].h.width);
    return failures;
}

/* ---- the same bits each time */

enum { REPEATS = 100 };

static int tell_repeats(const char *name, const struct ops_shape *h, int other)
{
    (void)printf("%srepeat: %s (%lld,%lld,%lld) %.1e\n", other ? "FAIL " : "", name, (long long)h->rows,
                 (long long)h->context, (long long)h->width, (double)other);
    return other > 0;
}

/* The same for the gradient of a layer (context,width) from `rows` rows, whose bias's sums are part of the product. */
static int repeat_weight_grad(struct device *gpu, const struct ops_shape *h)
{
    struct side s = {.d = gpu, .mode = DEVICE_BF16, .type = DEVICE_BF16, .random = {5}};
    size_t bytes[2] = {(size_t)(h->context * h->width) * sizeof(float), (size_t)h->width * sizeof(float)};
    void *first[2], *again[2], *to[2];
    struct err e;
    int other = 0;
    for (int i = 0; i < 2; i++) {
        first[i] = side_host_alloc(bytes[i]);
        again[i] = side_host_alloc(bytes[i]);
        to[i] = side_new_bytes(&s, NULL, bytes[i], 16);
    }
    struct device_weight_grad f = {.type = DEVICE_BF16,
                                   .rows = h->rows,
                                   .in = h->context,
                                   .out = h->width,
                                   .x = side_new_typed(&s, 1.0f, h->rows * h->context),
                                   .dy = side_new_typed(&s, 1.0f, h->rows * h->width),
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
    const int failures = tell_repeats(done ? "weight_grad" : "weight_grad apart", h, other);
    side_must(!gpu->ops->wait(gpu, &e), e.msg);
    side_release(&s);
    for (int i = 0; i < 2; i++) {
        free(first[i]);
        free(again[i]);
    }
    return failures;
}

/* A large result takes long to read and compare. */
static int repeats_of(size_t bytes)
{
    return bytes > 64 << 20 ? REPEATS / 4 : REPEATS;
}

/* Runs each product many times and compares the bits. An algorithm that splits a sum must add the parts
 * in the same order every time, also on a GPU that is busy with other blocks of the same product. */
static int repeat_products(struct device *gpu, bool quick)
{
    static const struct ops_shape quick_shapes[] = {{.rows = 48, .context = 640, .width = 56}};
    static const struct ops_shape shapes[] = {{.rows = 768, .context = 16384, .width = 768},
                                              {.rows = 768, .context = 32768, .width = 3072},
                                              {.rows = 3072, .context = 32768, .width = 768},
                                              {.rows = 1600, .context = 8192, .width = 1600},
                                              {.rows = 50304, .context = 2048, .width = 768}};
    const struct ops_shape *list = quick ? quick_shapes : shapes;
    size_t count =
        quick ? sizeof(quick_shapes) / sizeof(quick_shapes[0]) : sizeof(shapes) / sizeof(shapes[0]);
    struct err e;
    int failures = 0;
    for (size_t i = 0; i < count; i++)
        for (int flags = 0; flags < FLOAT_OUT; flags++) {
            struct ops_shape h = list[i];
            struct side s = {.d = gpu, .mode = DEVICE_BF16, .type = DEVICE_BF16, .random = {5}};
            h.way = flags;
            struct device_product p = product_of(&s, &h);
            size_t bytes = (size_t)(p.m * p.n) * device_size(p.out);
            void *before = side_new_bytes(&s, NULL, bytes, 16), *first = side_host_alloc(bytes),
                 *again = side_host_alloc(bytes);
            int other = 0;
            gpu->ops->copy(gpu, before, p.c, bytes);
            for (int r = 0; r < repeats_of(bytes); r++) {
                gpu->ops->copy(gpu, p.c, before, bytes);
                gpu->ops->product(gpu, &p);
                gpu->ops->download(gpu, r ? again : first, p.c, bytes);
                other += r && memcmp(first, again, bytes) != 0;
            }
            static char name[FLOAT_OUT][24];
            (void)snprintf(name[flags], sizeof(name[0]), "%s%s%s", p.trans_a ? "at" : "a",
                           p.trans_b ? " bt" : " b", p.beta != 0.0f ? " adds" : "");
            failures += tell_repeats(name[flags], &h, other);
            side_must(!gpu->ops->wait(gpu, &e), e.msg);
            side_release(&s);
            free(first);
            free(again);
        }
    return failures;
}

int ops_repeats(struct device *gpu, bool quick)
{
    static const struct ops_shape quick_layer = {.rows = 640, .context = 48, .width = 56},
                                  layer = {.rows = 32768, .context = 768, .width = 3072};
    return repeat_products(gpu, quick) + repeat_weight_grad(gpu, quick ? &quick_layer : &layer);
}
