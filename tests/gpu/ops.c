/* Compares every operation of a GPU except attention with the CPU device, for odd shapes, in float and bf16. Outputs
 * hold NaN before each operation. Nothing may be written after the end of an array, and a second run must give the same
 * bits. Prints the relative error of each operation.
 *
 *     gpu_ops                  calls the kernels directly (ops_launchers.c)
 *     gpu_ops --plugin         opens the device of the plugin; also compares products
 *     gpu_ops --plugin --repeat   runs products 100 times each and compares the bits of their results
 *     gpu_ops --quick          small shapes only; with --plugin every other of them
 *
 * Exit 77: no GPU. */
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "ops_side.h"
#include "trainer/device/ranges.h"

/* ---- the operations */

static struct device_tokens shape_tokens(const struct ops_shape *h)
{
    return (struct device_tokens){h->rows, h->context, h->width};
}

static struct device_dropout shape_dropout(struct side *s, const struct ops_shape *h)
{
    int64_t *sample = side_host_alloc((size_t)h->rows * sizeof(*sample));
    for (int64_t i = 0; i < h->rows; i++)
        sample[i] = 5000000000 + i * 77;
    struct device_dropout d = {.p = h->dropout, .key = 0x0123456789abcdefu};
    d.sample = side_new_bytes(s, sample, (size_t)h->rows * sizeof(*sample), sizeof(*sample));
    free(sample);
    return d;
}

/* Skewed like real text: half of the tokens are one of three. */
static int32_t *side_new_labels(struct side *s, int64_t n, int64_t vocab)
{
    int32_t *x = side_host_alloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++) {
        double r = 0.5 + 0.5 * (double)side_random(s);
        x[i] = (int32_t)(r < 0.5 ? r * 6.0 : (r - 0.5) * 2.0 * (double)(vocab - 1));
        x[i] = x[i] < vocab ? x[i] : (int32_t)(vocab - 1);
    }
    int32_t *p = side_new_bytes(s, x, (size_t)n * sizeof(*x), 16);
    free(x);
    return p;
}

static void try_flat(struct side *s, const struct ops_shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->width;
    float *x = side_new_floats(s, 3.0f, n), *y = side_new_floats(s, 1.0f, n),
          *a = side_new_blank(s, DEVICE_F32, n);
    enum device_activation kind = (enum device_activation)(n % 4);
    static const char *const names[] = {"relu", "gelu", "tanh", "gelu-tanh"};
    ops->activate(s->d, kind, a, x, (size_t)n);
    side_take(s, names[kind], a, DEVICE_F32, n);
    ops->activate_grad(s->d, kind, a, y, x, (size_t)n);
    side_take(s, "activate_grad", a, DEVICE_F32, n);
    ops->add(s->d, y, x, (size_t)n);
    side_take(s, "add", y, DEVICE_F32, n);
    ops->scale(s->d, y, (size_t)n, -1.25f);
    side_take(s, "scale", y, DEVICE_F32, n);
    void *narrow = side_new_blank(s, DEVICE_BF16, n);
    ops->narrow(s->d, narrow, x, (size_t)n);
    side_take(s, "narrow", narrow, DEVICE_BF16, n);
}

static void try_optimizers(struct side *s, const struct ops_shape *h)
{
    const struct device_ops *ops = s->d->ops;
    size_t n = (size_t)h->width;
    float *p = side_new_floats(s, 1.0f, h->width), *g = side_new_floats(s, 1.0f, h->width),
          *m = side_new_floats(s, 0.1f, h->width);
    float *v = side_new_floats(s, 1.0f, h->width), *scale = side_new_blank(s, DEVICE_F32, 1);
    double *squares = side_new_bytes(s, NULL, sizeof(double), sizeof(double));
    ops->sum_squares(s->d, g, n, squares);
    side_take_doubles(s, "sum_squares", squares, 1);
    ops->clip_scale(s->d, scale, squares, 0.7);
    side_take_exact(s, "clip_scale", scale, 1);
    /* AdamW's v is an average of squares, so it is never negative */
    ops->activate(s->d, DEVICE_RELU, v, v, n);
    struct device_adamw adamw = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.271f, 0.142625f, scale, NULL};
    for (int i = 0; i < 2; i++, adamw.scale = NULL)
        ops->adamw(s->d, &adamw, p, g, m, v, n);
    side_take_exact(s, "adamw", p, h->width);
    side_take_exact(s, "adamw m", m, h->width);
    side_take_exact(s, "adamw v", v, h->width);
    struct device_sgd sgd = {.lr = 0.1f, .weight_decay = 0.01f, .scale = scale};
    ops->sgd(s->d, &sgd, p, g, NULL, n);
    sgd.momentum = 0.9f;
    ops->sgd(s->d, &sgd, p, g, v, n);
    sgd.nesterov = true;
    sgd.scale = NULL;
    ops->sgd(s->d, &sgd, p, g, v, n);
    side_take_exact(s, "sgd", p, h->width);
    side_take_exact(s, "sgd v", v, h->width);
}

/* AdamW of two ranges with a gap of 4 floats, one without weight decay. The second moments of the first range lie behind those
 * of the other. The CPU device takes one range after the other. */
static void try_ranges(struct side *s, const struct ops_shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->width, half = n / 2;
    struct device_range items[] = {
        {.offset = 0, .count = (uint64_t)half, .second = (uint64_t)(n - half), .decays = 1},
        {.offset = (uint64_t)half + 4, .count = (uint64_t)(n - half - 4), .second = 0}};
    float *p = side_new_floats(s, 1.0f, n), *g = side_new_floats(s, 1.0f, n),
          *m = side_new_floats(s, 0.1f, n), *v = side_new_floats(s, 1.0f, n),
          *x = side_new_floats(s, 1.0f, n);
    uint16_t *narrow = side_new_noise(s, DEVICE_BF16, true, 1.0f, n);
    struct device_adamw decays = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.271f, 0.142625f, NULL, NULL},
                        plain = decays;
    plain.weight_decay = 0.0f;
    ops->activate(s->d, DEVICE_RELU, v, v, (size_t)n);
    if (ops->adamw_ranges) {
        struct device_ranges r;
        struct err e;
        side_must(!device_ranges_open(&r, s->d, items, 2, &e), "no memory on the device");
        ops->adamw_ranges(s->d, &decays, &r, p, g, m, v, n % 3 ? narrow : NULL);
        ops->zero_ranges(s->d, &r, x);
        side_must(!ops->wait(s->d, &e), e.msg);
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
    side_take_exact(s, "adamw_ranges", p, n);
    side_take_exact(s, "adamw_ranges m", m, n);
    side_take_exact(s, "adamw_ranges v", v, n);
    side_take_exact(s, "zero_ranges", x, n);
    side_take(s, "adamw_ranges narrowed", narrow, DEVICE_BF16, n);
    s->result[s->results - 1].exact = true;
}

/* Updates `context` matrices of rows x width that lie side by side. The learning rate is high, so that an error of
 * the update is large compared with the parameters. */
static void try_muon(struct side *s, const struct ops_shape *h)
{
    const struct device_ops *ops = s->d->ops;
    struct device_matrix matrices[3];
    int64_t stride = h->width * h->context, n = h->rows * stride;
    float *p = side_new_floats(s, 0.1f, n), *g = side_new_floats(s, 1.0f, n),
          *m = side_new_floats(s, 0.1f, n), *scale = side_new_floats(s, 1.0f, 1);
    struct device_muon muon = {.lr = 0.5f,
                               .momentum = 0.95f,
                               .weight_decay = 0.1f,
                               .scale = scale,
                               .kept = s->type,
                               .matrices = matrices,
                               .count = (size_t)h->context};
    for (int64_t i = 0; i < h->context; i++)
        matrices[i] = (struct device_matrix){(size_t)(i * h->width), h->rows, h->width, stride, 1.5f};
    int before = s->shifted;
    s->shifted = 0; /* the device needs this workspace with its usual alignment */
    muon.room = side_new_bytes(s, NULL, ops->muon_bytes(s->d, &muon), 8);
    s->shifted = before;
    ops->muon(s->d, &muon, p, g, m);
    side_take(s, "muon", p, DEVICE_F32, n);
    s->result[s->results - 1].newton = true;
    side_take_exact(s, "muon m", m, n);
}

static void try_dense(struct side *s, const struct ops_shape *h)
{
    const struct device_ops *ops = s->d->ops;
    int64_t n = h->rows * h->width;
    void *z = side_new_typed(s, 3.0f, n), *da = side_new_typed(s, 1.0f, n),
         *a = side_new_blank(s, s->type, n);
    float *bias = side_new_floats(s, 1.0f, h->width), *more = side_new_floats(s, 1.0f, h->width);
    void *dz = h->rows % 2 ? da : side_new_blank(s, s->type, n);
    enum device_activation kind = (enum device_activation)((h->rows + h->width) % 4);
    ops->bias_grad(s->d, s->type, more, da, h->rows, h->width);
    side_take_sum(s, "bias_grad", more, DEVICE_F32, h->width, h->rows);
    ops->bias_activate_grad(s->d, kind, s->type, s->type, dz, a, bias, da, z, h->rows, h->width);
    side_take(s, "bias_activate_grad dz", dz, s->type, n);
    side_take(s, "bias_activate_grad a", a, s->type, n);
    side_take_sum(s, "bias_activate_grad dbias", bias, DEVICE_F32, h->width, h->rows);
}

/* Tests the kernel that follows a layer's product. Only the device of ops_launchers.c can call it by itself. */
static void try_bias_activate(struct side *s, const struct ops_shape *h)
{
    int64_t n = h->rows * h->width;
    void *z = side_new_typed(s, 3.0f, n), *a = side_new_blank(s, s->type, n);
    float *bias = side_new_floats(s, 1.0f, h->width);
    enum device_activation kind = (enum device_activation)(h->width % 4);
    if (s->d->host) {
        for (int64_t i = 0; i < h->rows; i++)
            s->d->ops->add(s->d, (float *)z + i * h->width, bias, (size_t)h->width);
        s->d->ops->activate(s->d, kind, a, z, (size_t)n);
    } else {
        ops_bias_activate(kind, s->type, a, z, bias, h->rows, h->width);
    }
    side_take(s, "bias_activate z", z, s->type, n);
    side_take(s, "bias_activate a", a, s->type, n);
}

static void try_norm(struct side *s, const struct ops_shape *h)
{
    int64_t t = h->rows * h->context, n = t * h->width, w = h->width;
    struct device_norm f = {
        .n = shape_tokens(h), .dropout = shape_dropout(s, h), .type = s->type, .kept = s->type};
    float *residual = side_new_floats(s, 2.0f, n);
    f.residual = residual;
    f.delta = side_new_typed(s, 1.0f, n);
    f.bias = side_new_floats(s, 1.0f, w);
    f.gain = side_new_floats(s, 1.0f, w);
    f.shift = side_new_floats(s, 1.0f, w);
    f.x = h->rows % 2 ? residual : side_new_blank(s, DEVICE_F32, n);
    f.stats = side_new_blank(s, DEVICE_F32, 2 * t);
    f.y = side_new_blank(s, s->type, n);
    s->d->ops->norm(s->d, &f);
    side_take(s, "norm x", f.x, DEVICE_F32, n);
    side_take(s, "norm y", f.y, s->type, n);
    side_take(s, "norm stats", f.stats, DEVICE_F32, 2 * t);
    struct device_norm_grad b = {.n = f.n, .dropout = f.dropout, .x = f.x, .stats = f.stats, .gain = f.gain};
    b.type = b.kept = s->type;
    b.dy = side_new_typed(s, 1.0f, n);
    b.set = h->context % 3 == 1;
    b.dx = b.set ? side_new_blank(s, s->type, n) : side_new_typed(s, 1.0f, n);
    b.dgain = side_new_floats(s, 1.0f, w);
    b.dshift = side_new_floats(s, 1.0f, w);
    b.dbias = side_new_floats(s, 1.0f, w);
    b.ddelta = side_new_blank(s, s->type, n);
    s->d->ops->norm_grad(s->d, &b);
    side_take(s, "norm_grad dx", b.dx, s->type, n);
    side_take(s, "norm_grad ddelta", b.ddelta, s->type, n);
    side_take_sum(s, "norm_grad dgain", b.dgain, DEVICE_F32, w, t);
    side_take_sum(s, "norm_grad dshift", b.dshift, DEVICE_F32, w, t);
    side_take_sum(s, "norm_grad dbias", b.dbias, DEVICE_F32, w, t);
    f.delta = NULL;
    f.residual = f.x;
    b.dbias = NULL;
    b.ddelta = NULL;
    s->d->ops->norm(s->d, &f);
    s->d->ops->norm_grad(s->d, &b);
    side_take(s, "norm y, no delta", f.y, s->type, n);
    side_take(s, "norm_grad dx, no delta", b.dx, s->type, n);
}

static void try_embed(struct side *s, const struct ops_shape *h)
{
    int64_t t = h->rows * h->context, n = t * h->width;
    struct device_embedding f = {.n = shape_tokens(h), .vocab = h->vocab, .dropout = shape_dropout(s, h)};
    f.token = side_new_labels(s, t, h->vocab);
    float *wte = side_new_floats(s, 1.0f, h->vocab * h->width),
          *wpe = side_new_floats(s, 1.0f, h->context * h->width);
    float *x = side_new_blank(s, DEVICE_F32, n);
    s->d->ops->embed(s->d, &f, wte, wpe, x);
    side_take(s, "embed", x, DEVICE_F32, n);
    void *dx = side_new_typed(s, 1.0f, n);
    f.kept = s->type;
    s->d->ops->embed_grad(s->d, &f, wte, wpe, dx);
    side_take_sum(s, "embed_grad dwte", wte, DEVICE_F32, h->vocab * h->width, t);
    /* a sum of numbers that were rounded to this type, so its error is as large */
    s->result[s->results - 1].type = s->type;
    side_take_sum(s, "embed_grad dwpe", wpe, DEVICE_F32, h->context * h->width, h->rows);
    side_take(s, "embed_grad dx", dx, s->type, n);
}

static void try_classes(struct side *s, const struct ops_shape *h)
{
    int64_t stride = h->context, n = h->rows * stride; /* shape.context is the stride here */
    struct device_tally zero = {0};
    struct device_classes c = {.type = s->type, .kept = s->type, .rows = h->rows, .classes = h->width};
    c.stride = stride;
    c.label = side_new_labels(s, h->rows, h->width);
    c.x = side_new_typed(s, 8.0f, n);
    c.dx = h->rows % 2 ? c.x : side_new_blank(s, s->type, n);
    c.scale = 1.0f / (float)h->rows;
    c.weight = 0.5;
    c.tally = side_new_bytes(s, &zero, sizeof(zero), sizeof(double));
    s->d->ops->cross_entropy(s->d, &c);
    side_take(s, "cross_entropy dx", c.dx, s->type, n);
    side_take_doubles(s, "cross_entropy tally", &c.tally->loss, 2);
    float *mean = side_new_blank(s, DEVICE_F32, 1);
    s->d->ops->tally_mean(s->d, mean, c.tally, (double)h->rows);
    side_take(s, "tally_mean", mean, DEVICE_F32, 1);
    float *x = side_new_floats(s, 1.0f, n), *y = side_new_floats(s, 1.0f, n),
          *dx = side_new_blank(s, DEVICE_F32, n);
    s->d->ops->mse(s->d, dx, x, y, h->rows, stride, 0.25f, c.tally);
    side_take(s, "mse dx", dx, DEVICE_F32, n);
    side_take_doubles(s, "mse tally", &c.tally->loss, 2);
}

static void try_digest(struct side *s, const struct ops_shape *h)
{
    int64_t blocks = (h->width + DIGEST_BLOCK - 1) / DIGEST_BLOCK;
    float *x = side_host_alloc((size_t)h->width * sizeof(float));
    uint64_t *got = side_host_alloc((size_t)blocks * sizeof(*got));
    for (int64_t i = 0; i < h->width; i++)
        x[i] = side_random(s);
    int before = s->shifted;
    s->shifted = 0;
    float *on = side_new_bytes(s, x, (size_t)h->width * sizeof(float), sizeof(float));
    s->shifted = before;
    uint64_t *sums = side_new_bytes(s, NULL, (size_t)blocks * sizeof(*sums), sizeof(*sums));
    if (s->d->ops->digest) {
        s->d->ops->digest(s->d, sums, on, (size_t)h->width);
        s->d->ops->download(s->d, got, sums, (size_t)blocks * sizeof(*got));
        for (int64_t i = 0; i < blocks; i++) {
            int64_t left = h->width - i * DIGEST_BLOCK;
            if (got[i] !=
                digest64_sum(x + i * DIGEST_BLOCK, (size_t)(left < DIGEST_BLOCK ? left : DIGEST_BLOCK))) {
                (void)printf("FAIL digest: block %lld\n", (long long)i);
                s->failures++;
            }
        }
    }
    free(x);
    free(got);
}

static const struct ops_case cases[] = {
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
    {try_norm, {3, 700, 770, 1, 0.1f}, false},
    {try_norm, {1, 5, 1600, 1, 0.2f}, false},
    {try_norm, {1, 2, 6400, 1, 0.1f}, false},
    {try_norm, {2, 1, 6403, 1, 0.0f}, false},
    /* more rows than blocks of threads: kept in registers, and in memory; dx is added to, and set */
    {try_norm, {1, 140, 2052, 1, 0.1f}, false},
    {try_norm, {1, 301, 4096, 1, 0.0f}, true},
    {try_norm, {1, 300, 1026, 1, 0.1f}, true},
    {try_norm, {1, 301, 4100, 1, 0.0f}, true},
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
    {try_classes, {.rows = 512, .context = 50304, .width = 50257}, true},
};

int main(int argc, char **argv)
{
    struct device *cpu = NULL, *gpu = NULL;
    struct err e = {0};
    bool plugin = false, quick = false, repeat = false;
    int failures = 0;
    for (int i = 1; i < argc; i++) {
        plugin = plugin || strcmp(argv[i], "--plugin") == 0;
        quick = quick || strcmp(argv[i], "--quick") == 0;
        repeat = repeat || strcmp(argv[i], "--repeat") == 0;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* the lines so far are there if this program is ended */
    side_must(plugin || !repeat, "--repeat needs --plugin");
    side_must(!device_open(&cpu, DEVICE_CPU, 0, 1, 1, &e), "no CPU device");
    enum err_code code = plugin ? device_open(&gpu, DEVICE_CUDA, 0, 1, 1, &e) : ops_launchers_open(&gpu, &e);
    if (code) {
        (void)fprintf(stderr, "gpu_ops: %s\n", e.msg);
        return code == ERR_UNAVAILABLE ? 77 : 1;
    }
    if (repeat)
        failures += ops_repeats(gpu, quick);
    else if (plugin)
        failures += ops_products(cpu, gpu, quick);
    for (size_t i = 0; !repeat && i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct ops_case *c = &cases[i];
        /* the plugin does not offer this kernel by itself, and Muon needs the plugin's products */
        if (c->fn == (plugin ? try_bias_activate : try_muon) || (quick && c->large))
            continue;
        /* without the plugin, the same kernels are tested with the other shapes, too */
        if (quick && plugin && c->fn != try_muon && i % 2)
            continue;
        failures += side_try_case(cpu, gpu, c, c->fn == try_classes ? c->h.context : c->h.width);
    }
    device_close(gpu);
    device_close(cpu);
    if (failures)
        (void)fprintf(stderr, "gpu_ops: %d failures\n", failures);
    else
        (void)printf("all results agree\n"); /* without this line, the output is not whole */
    return failures ? 1 : 0;
}
