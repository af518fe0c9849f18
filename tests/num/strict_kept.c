/* The operations of a device whose kept type is bf16: inputs are widened, the CPU's operation computes with
 * floats, and results are narrowed. Replaces the calls of strict_ops.c whose kept type is bf16. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/num/strict.h"

static float *float_array(int64_t n)
{
    return xcalloc((size_t)n, sizeof(float));
}

static float *bf16_widened(const void *bf16, int64_t n)
{
    const uint16_t *from = bf16;
    float *to = float_array(n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof(bits));
    }
    return to;
}

/* Frees `from`. */
static void bf16_narrowed(struct device *cpu, void *bf16, float *from, int64_t n)
{
    cpu->ops->narrow(cpu, bf16, from, (size_t)n);
    free(from);
}

static int64_t token_count(const struct device_tokens *n)
{
    return n->rows * n->context;
}

static void run_product(struct device *cpu, const struct call *c)
{
    struct device_product h = c->h.product;
    float *to = float_array(h.m * h.n);
    BUG_ON(h.beta != 0.0f);
    h.out = DEVICE_F32;
    h.c = to;
    cpu->ops->product(cpu, &h);
    bf16_narrowed(cpu, c->h.product.c, to, h.m * h.n);
}

static void run_linear(struct device *cpu, const struct call *c)
{
    struct device_linear h = c->h.linear;
    float *z = float_array(h.rows * h.out);
    h.kept = DEVICE_F32;
    h.z = z;
    cpu->ops->linear(cpu, &h);
    bf16_narrowed(cpu, c->h.linear.z, z, h.rows * h.out);
}

static void run_bias_grad(struct device *cpu, const struct call *c)
{
    float *dy = bf16_widened(c->p[1], c->n[0] * c->n[1]);
    cpu->ops->bias_grad(cpu, DEVICE_F32, c->p[0], dy, c->n[0], c->n[1]);
    free(dy);
}

static void run_bias_activate_grad(struct device *cpu, const struct call *c)
{
    float *da = bf16_widened(c->p[3], c->n[0] * c->n[1]), *z = bf16_widened(c->p[4], c->n[0] * c->n[1]);
    cpu->ops->bias_activate_grad(cpu, c->kind, c->type, DEVICE_F32, c->p[0], c->p[1], c->p[2], da, z, c->n[0],
                                 c->n[1]);
    free(da);
    free(z);
}

static void run_norm(struct device *cpu, const struct call *c)
{
    struct device_norm h = c->h.norm;
    float *delta = h.delta ? bf16_widened(h.delta, token_count(&h.n) * h.n.width) : NULL;
    BUG_ON(h.delta && (h.delta == h.x || h.delta == h.residual));
    h.kept = DEVICE_F32;
    h.delta = delta;
    cpu->ops->norm(cpu, &h);
    free(delta);
}

static void run_norm_grad(struct device *cpu, const struct call *c)
{
    struct device_norm_grad h = c->h.norm_grad;
    int64_t n = token_count(&h.n) * h.n.width;
    float *dy = bf16_widened(h.dy, n), *dx = h.set ? float_array(n) : bf16_widened(h.dx, n);
    h.kept = DEVICE_F32;
    h.dy = dy;
    h.dx = dx;
    cpu->ops->norm_grad(cpu, &h);
    bf16_narrowed(cpu, c->h.norm_grad.dx, dx, n);
    free(dy);
}

static void run_embed_grad(struct device *cpu, const struct call *c)
{
    struct device_embedding h = c->h.embedding;
    int64_t n = token_count(&h.n) * h.n.width;
    float *dx = bf16_widened(c->p[2], n);
    h.kept = DEVICE_F32;
    cpu->ops->embed_grad(cpu, &h, c->p[0], c->p[1], dx);
    bf16_narrowed(cpu, c->p[2], dx, n);
}

static void run_attention(struct device *cpu, const struct call *c)
{
    struct device_attention h = c->h.attention;
    int64_t n = token_count(&h.n) * h.n.width;
    float *qkv = bf16_widened(h.qkv, 3 * n), *o = float_array(n);
    h.kept = DEVICE_F32;
    h.qkv = qkv;
    h.o = o;
    cpu->ops->attention(cpu, &h);
    free(qkv);
    bf16_narrowed(cpu, c->h.attention.o, o, n);
}

static void run_attention_grad(struct device *cpu, const struct call *c)
{
    struct device_attention h = c->h.attention;
    int64_t n = token_count(&h.n) * h.n.width;
    float *qkv = bf16_widened(h.qkv, 3 * n), *o = bf16_widened(h.o, n), *d_o = bf16_widened(c->p[0], n),
          *dqkv = float_array(3 * n);
    h.kept = DEVICE_F32;
    h.qkv = qkv;
    h.o = o;
    cpu->ops->attention_grad(cpu, &h, d_o, dqkv);
    free(qkv);
    free(o);
    free(d_o);
    bf16_narrowed(cpu, c->p[1], dqkv, 3 * n);
}

static void run_cross_entropy(struct device *cpu, const struct call *c)
{
    struct device_classes h = c->h.classes;
    float *x = bf16_widened(h.x, h.rows * h.stride);
    h.kept = DEVICE_F32;
    h.x = x;
    cpu->ops->cross_entropy(cpu, &h);
    free(x);
}

void strict_keep(const struct device *d, struct call *c, enum strict_kept_op op, enum device_type kept)
{
    static void (*const runs[])(struct device * cpu, const struct call *c) = {
        [KEPT_PRODUCT] = run_product,
        [KEPT_LINEAR] = run_linear,
        [KEPT_BIAS_GRAD] = run_bias_grad,
        [KEPT_BIAS_ACTIVATE_GRAD] = run_bias_activate_grad,
        [KEPT_NORM] = run_norm,
        [KEPT_NORM_GRAD] = run_norm_grad,
        [KEPT_EMBED_GRAD] = run_embed_grad,
        [KEPT_ATTENTION] = run_attention,
        [KEPT_ATTENTION_GRAD] = run_attention_grad,
        [KEPT_CROSS_ENTROPY] = run_cross_entropy,
    };
    if (kept == DEVICE_BF16 && !d->attends_bf16) /* else the CPU itself keeps bf16 */
        c->run = runs[op];
}
