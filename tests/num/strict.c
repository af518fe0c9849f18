/* A plugin whose device computes as the CPU's does, to the same bits, but says that its memory is its own,
 * and means it: what it hands out are addresses that nobody can read or write, and every operation looks for
 * the floats behind them at a fixed distance. So who touches device memory from the host dies where they do
 * it, and who hands an operation memory of the host is told so. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/digest.h"
#include "base/mem.h"
#include "trainer/device/plugin.h"

#define ROOM ((size_t)4 << 30) /* of addresses; what is used of it becomes memory */

struct strict_device {
    struct device base;
    struct device *cpu;
    char *away, *here; /* what is handed out, and what is behind it */
    size_t used;       /* never given back: a pointer to what was freed is not found again by accident */
};

struct header { /* in front of each allocation, behind the wall */
    size_t bytes;
    char fill[64 - sizeof(size_t)];
};

static struct strict_device *strict_of(struct device *d)
{
    return (struct strict_device *)(void *)d;
}

/* Where the device's p is. */
static void *in(struct device *d, const void *p)
{
    struct strict_device *s = strict_of(d);
    const char *at = p;
    if (!p)
        return NULL;
    BUG_ON(at < s->away || at >= s->away + s->used);
    return s->here + (at - s->away);
}

static bool is_ours(struct device *d, const void *p)
{
    struct strict_device *s = strict_of(d);
    const char *at = p;
    return (at >= s->away && at < s->away + ROOM) || (at >= s->here && at < s->here + ROOM);
}

/* The device behind, and its operations. */
#define CPU strict_of(d)->cpu
#define OPS strict_of(d)->cpu->ops

/* ---- memory */

static void strict_close(struct device *d)
{
    struct strict_device *s = strict_of(d);
    munmap(s->away, ROOM);
    munmap(s->here, ROOM);
    device_close(s->cpu);
    free(s);
}

static enum err_code strict_wait(struct device *d, struct err *e)
{
    return OPS->wait(CPU, e);
}

static enum err_code strict_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    struct strict_device *s = strict_of(d);
    if (bytes > ROOM - s->used - 2 * sizeof(struct header))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "out of memory");
    struct header *h = (void *)(s->here + s->used);
    h->bytes = bytes;
    *out = s->away + s->used + sizeof(*h);
    s->used += (sizeof(*h) + bytes + 63) / 64 * 64;
    d->bytes += bytes;
    return ERR_OK;
}

/* What is freed is lost: a later use shows in the numbers. */
static void strict_free(struct device *d, void *p)
{
    if (!p)
        return;
    struct header *h = (struct header *)in(d, p) - 1;
    d->bytes -= h->bytes;
    memset(h + 1, 0xff, h->bytes);
}

static void strict_upload(struct device *d, void *to, const void *from_host, size_t bytes)
{
    BUG_ON(is_ours(d, from_host));
    memcpy(in(d, to), from_host, bytes);
}

static void strict_download(struct device *d, void *to_host, const void *from, size_t bytes)
{
    BUG_ON(is_ours(d, to_host));
    memcpy(to_host, in(d, from), bytes);
}

static void strict_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    memcpy(in(d, to), in(d, from), bytes);
}

static void strict_zero(struct device *d, void *to, size_t bytes)
{
    memset(in(d, to), 0, bytes);
}

/* ---- matrices */

static void strict_product(struct device *d, const struct device_product *h)
{
    struct device_product g = *h;
    g.a = in(d, h->a);
    g.b = in(d, h->b);
    g.c = in(d, h->c);
    OPS->product(CPU, &g);
}

static void strict_linear(struct device *d, const struct device_linear *h)
{
    struct device_linear g = *h;
    g.x = in(d, h->x);
    g.w = in(d, h->w);
    g.bias = in(d, h->bias);
    g.z = in(d, h->z);
    g.a = in(d, h->a);
    OPS->linear(CPU, &g);
}

static void strict_narrow(struct device *d, void *bf16, const float *x, size_t n)
{
    OPS->narrow(CPU, in(d, bf16), in(d, x), n);
}

static void strict_bias_grad(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                             int64_t cols)
{
    OPS->bias_grad(CPU, type, in(d, db), in(d, dy), rows, cols);
}

static void strict_activate(struct device *d, enum device_activation kind, float *y, const float *x, size_t n)
{
    OPS->activate(CPU, kind, in(d, y), in(d, x), n);
}

static void strict_activate_grad(struct device *d, enum device_activation kind, float *dx, const float *dy,
                                 const float *x, size_t n)
{
    OPS->activate_grad(CPU, kind, in(d, dx), in(d, dy), in(d, x), n);
}

static void strict_bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                                      enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                                      const void *z, int64_t rows, int64_t cols)
{
    OPS->bias_activate_grad(CPU, kind, type, kept, in(d, dz), in(d, a), in(d, dbias), in(d, da), in(d, z),
                            rows, cols);
}

/* ---- sequences */

static struct device_dropout dropout(struct device *d, struct device_dropout h)
{
    h.sample = h.p > 0.0f ? in(d, h.sample) : NULL;
    return h;
}

static void strict_embed(struct device *d, const struct device_embedding *h, const float *wte,
                         const float *wpe, float *x)
{
    struct device_embedding g = *h;
    g.token = in(d, h->token);
    g.dropout = dropout(d, h->dropout);
    OPS->embed(CPU, &g, in(d, wte), in(d, wpe), in(d, x));
}

static void strict_embed_grad(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                              float *dx)
{
    struct device_embedding g = *h;
    g.token = in(d, h->token);
    g.dropout = dropout(d, h->dropout);
    OPS->embed_grad(CPU, &g, in(d, dwte), in(d, dwpe), in(d, dx));
}

static void strict_norm(struct device *d, const struct device_norm *h)
{
    struct device_norm g = *h;
    g.dropout = dropout(d, h->dropout);
    g.residual = in(d, h->residual);
    g.delta = in(d, h->delta);
    g.bias = in(d, h->bias);
    g.gain = in(d, h->gain);
    g.shift = in(d, h->shift);
    g.x = in(d, h->x);
    g.stats = in(d, h->stats);
    g.y = in(d, h->y);
    OPS->norm(CPU, &g);
}

static void strict_norm_grad(struct device *d, const struct device_norm_grad *h)
{
    struct device_norm_grad g = *h;
    g.dropout = dropout(d, h->dropout);
    g.dy = in(d, h->dy);
    g.x = in(d, h->x);
    g.stats = in(d, h->stats);
    g.gain = in(d, h->gain);
    g.dx = in(d, h->dx);
    g.dgain = in(d, h->dgain);
    g.dshift = in(d, h->dshift);
    g.dbias = in(d, h->dbias);
    g.ddelta = in(d, h->ddelta);
    OPS->norm_grad(CPU, &g);
}

static struct device_attention attention_in(struct device *d, const struct device_attention *h)
{
    struct device_attention g = *h;
    g.dropout = dropout(d, h->dropout);
    g.qkv = in(d, h->qkv);
    g.o = in(d, h->o);
    g.lse = in(d, h->lse);
    return g;
}

static void strict_attention(struct device *d, const struct device_attention *h)
{
    struct device_attention g = attention_in(d, h);
    OPS->attention(CPU, &g);
}

static void strict_attention_grad(struct device *d, const struct device_attention *h, const void *d_o,
                                  void *dqkv)
{
    struct device_attention g = attention_in(d, h);
    OPS->attention_grad(CPU, &g, in(d, d_o), in(d, dqkv));
}

static enum err_code strict_reserve(struct device *d, const struct device_sizes *sizes, struct err *e)
{
    return OPS->reserve(CPU, sizes, e);
}

/* ---- losses and updates */

static void strict_cross_entropy(struct device *d, const struct device_classes *h)
{
    struct device_classes g = *h;
    g.label = in(d, h->label);
    g.x = in(d, h->x);
    g.dx = in(d, h->dx);
    g.tally = in(d, h->tally);
    OPS->cross_entropy(CPU, &g);
}

static void strict_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows,
                       int64_t cols, float scale, struct device_tally *tally)
{
    OPS->mse(CPU, in(d, dx), in(d, x), in(d, y), rows, cols, scale, in(d, tally));
}

static void strict_tally_mean(struct device *d, float *to, const struct device_tally *tally, double divisor)
{
    OPS->tally_mean(CPU, in(d, to), in(d, tally), divisor);
}

static void strict_sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    OPS->sum_squares(CPU, in(d, x), n, in(d, out));
}

static void strict_digest(struct device *d, uint64_t *sums, const float *x, size_t n)
{
    uint64_t *to = in(d, sums);
    const float *from = in(d, x);
    for (size_t at = 0; at < n; at += DIGEST_BLOCK)
        *to++ = digest64_sum(from + at, n - at < DIGEST_BLOCK ? n - at : DIGEST_BLOCK);
}

static void strict_clip_scale(struct device *d, float *scale, const double *squares, double clip)
{
    OPS->clip_scale(CPU, in(d, scale), in(d, squares), clip);
}

static void strict_scale(struct device *d, float *x, size_t n, float by)
{
    OPS->scale(CPU, in(d, x), n, by);
}

static void strict_add(struct device *d, float *y, const float *x, size_t n)
{
    OPS->add(CPU, in(d, y), in(d, x), n);
}

static void strict_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v,
                       size_t n)
{
    struct device_sgd with = *h;
    with.scale = in(d, h->scale);
    OPS->sgd(CPU, &with, in(d, p), in(d, g), in(d, v), n);
}

static void strict_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                         float *v, size_t n)
{
    struct device_adamw with = *h;
    with.scale = in(d, h->scale);
    OPS->adamw(CPU, &with, in(d, p), in(d, g), in(d, m), in(d, v), n);
}

/* ---- the plugin */

static const struct device_ops strict_ops = {
    .name = "strict",
    .close = strict_close,
    .wait = strict_wait,
    .alloc = strict_alloc,
    .free = strict_free,
    .upload = strict_upload,
    .download = strict_download,
    .copy = strict_copy,
    .zero = strict_zero,
    .product = strict_product,
    .linear = strict_linear,
    .narrow = strict_narrow,
    .bias_grad = strict_bias_grad,
    .activate = strict_activate,
    .activate_grad = strict_activate_grad,
    .bias_activate_grad = strict_bias_activate_grad,
    .embed = strict_embed,
    .embed_grad = strict_embed_grad,
    .norm = strict_norm,
    .norm_grad = strict_norm_grad,
    .attention = strict_attention,
    .attention_grad = strict_attention_grad,
    .reserve = strict_reserve,
    .cross_entropy = strict_cross_entropy,
    .mse = strict_mse,
    .tally_mean = strict_tally_mean,
    .sum_squares = strict_sum_squares,
    .digest = strict_digest,
    .clip_scale = strict_clip_scale,
    .scale = strict_scale,
    .add = strict_add,
    .sgd = strict_sgd,
    .adamw = strict_adamw,
};

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static enum err_code strict_open(struct device **out, struct err *e)
{
    struct device *cpu = NULL;
    if (number_of("DDP_STRICT_DECLINES", -1) == number_of("RANK", 0))
        return err_set(e, ERR_UNAVAILABLE, "no wall here");
    if (device_open(&cpu, DEVICE_CPU, number_of("LOCAL_RANK", 0), number_of("LOCAL_WORLD_SIZE", 1), 0, e))
        return e->code;
    struct strict_device *s = xcalloc(1, sizeof(*s));
    s->base = (struct device){.ops = &strict_ops, .name = "strict", .kept = DEVICE_F32};
    s->base.threads = cpu->threads;
    s->cpu = cpu;
    s->away = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    s->here = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    BUG_ON(s->away == MAP_FAILED || s->here == MAP_FAILED);
    *out = &s->base;
    return ERR_OK;
}

__attribute__((visibility("default"))) const struct plugin *ddp_plugin(uint32_t abi);
const struct plugin *ddp_plugin(uint32_t abi)
{
    static const struct plugin strict = {
        .abi = PLUGIN_ABI,
        .size = sizeof(strict),
        .name = "strict",
        .version = "the CPU behind a wall",
        .open = strict_open,
    };
    return abi == PLUGIN_ABI ? &strict : NULL;
}
