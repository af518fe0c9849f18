/* The strict device's operations. Each translates its pointers during the call and does its work later. So if a
 * pointer is wrong, the abort happens in the call, and the backtrace shows the caller. */
#include "base/digest.h"
#include "tests/num/strict.h"

#define IN(p) strict_in(d, p)

/* ---- matrices */

static void run_product(struct device *cpu, const struct call *c)
{
    cpu->ops->product(cpu, &c->h.product);
}

static void strict_product(struct device *d, const struct device_product *h)
{
    struct call c = {.run = run_product, .h.product = *h};
    c.h.product.a = IN(h->a);
    c.h.product.b = IN(h->b);
    c.h.product.c = IN(h->c);
    strict_keep(d, &c, KEPT_PRODUCT, h->out);
    strict_call(d, c);
}

static void run_linear(struct device *cpu, const struct call *c)
{
    cpu->ops->linear(cpu, &c->h.linear);
}

static void strict_linear(struct device *d, const struct device_linear *h)
{
    struct call c = {.run = run_linear, .h.linear = *h};
    c.h.linear.x = IN(h->x);
    c.h.linear.w = IN(h->w);
    c.h.linear.bias = IN(h->bias);
    c.h.linear.z = IN(h->z);
    c.h.linear.a = IN(h->a);
    strict_keep(d, &c, KEPT_LINEAR, h->kept);
    strict_call(d, c);
}

static void run_narrow(struct device *cpu, const struct call *c)
{
    cpu->ops->narrow(cpu, c->p[0], c->p[1], (size_t)c->n[0]);
}

static void strict_narrow(struct device *d, void *bf16, const float *x, size_t n)
{
    strict_call(d, (struct call){.run = run_narrow, .p = {IN(bf16), IN(x)}, .n = {(int64_t)n}});
}

static void run_bias_grad(struct device *cpu, const struct call *c)
{
    cpu->ops->bias_grad(cpu, c->type, c->p[0], c->p[1], c->n[0], c->n[1]);
}

static void strict_bias_grad(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                             int64_t cols)
{
    struct call c = {.run = run_bias_grad, .type = type, .p = {IN(db), IN(dy)}, .n = {rows, cols}};
    strict_keep(d, &c, KEPT_BIAS_GRAD, type);
    strict_call(d, c);
}

static void run_activate(struct device *cpu, const struct call *c)
{
    cpu->ops->activate(cpu, c->kind, c->p[0], c->p[1], (size_t)c->n[0]);
}

static void strict_activate(struct device *d, enum device_activation kind, float *y, const float *x, size_t n)
{
    strict_call(d, (struct call){.run = run_activate, .kind = kind, .p = {IN(y), IN(x)}, .n = {(int64_t)n}});
}

static void run_activate_grad(struct device *cpu, const struct call *c)
{
    cpu->ops->activate_grad(cpu, c->kind, c->p[0], c->p[1], c->p[2], (size_t)c->n[0]);
}

static void strict_activate_grad(struct device *d, enum device_activation kind, float *dx, const float *dy,
                                 const float *x, size_t n)
{
    strict_call(d,
                (struct call){
                    .run = run_activate_grad, .kind = kind, .p = {IN(dx), IN(dy), IN(x)}, .n = {(int64_t)n}});
}

static void run_bias_activate_grad(struct device *cpu, const struct call *c)
{
    cpu->ops->bias_activate_grad(cpu, c->kind, c->type, c->kept, c->p[0], c->p[1], c->p[2], c->p[3], c->p[4],
                                 c->n[0], c->n[1]);
}

static void strict_bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                                      enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                                      const void *z, int64_t rows, int64_t cols)
{
    struct call c = {.run = run_bias_activate_grad,
                     .kind = kind,
                     .type = type,
                     .kept = kept,
                     .p = {IN(dz), IN(a), IN(dbias), IN(da), IN(z)},
                     .n = {rows, cols}};
    strict_keep(d, &c, KEPT_BIAS_ACTIVATE_GRAD, kept);
    strict_call(d, c);
}

/* ---- sequences; operations with dropout cannot be recorded, because their masks differ from step to step */

static struct device_dropout strict_dropout(struct device *d, struct device_dropout h)
{
    if (h.p > 0.0f)
        strict_not_while_recording(d);
    h.sample = h.p > 0.0f ? IN(h.sample) : NULL;
    return h;
}

static struct device_embedding embedding_in(struct device *d, const struct device_embedding *h)
{
    struct device_embedding g = *h;
    g.token = IN(h->token);
    g.dropout = strict_dropout(d, h->dropout);
    return g;
}

static void run_embed(struct device *cpu, const struct call *c)
{
    cpu->ops->embed(cpu, &c->h.embedding, c->p[0], c->p[1], c->p[2]);
}

static void strict_embed(struct device *d, const struct device_embedding *h, const float *wte,
                         const float *wpe, float *x)
{
    strict_call(d, (struct call){
                       .run = run_embed, .h.embedding = embedding_in(d, h), .p = {IN(wte), IN(wpe), IN(x)}});
}

static void run_embed_grad(struct device *cpu, const struct call *c)
{
    cpu->ops->embed_grad(cpu, &c->h.embedding, c->p[0], c->p[1], c->p[2]);
}

static void strict_embed_grad(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                              void *dx)
{
    struct call c = {
        .run = run_embed_grad, .h.embedding = embedding_in(d, h), .p = {IN(dwte), IN(dwpe), IN(dx)}};
    strict_keep(d, &c, KEPT_EMBED_GRAD, h->kept);
    strict_call(d, c);
}

static void run_norm(struct device *cpu, const struct call *c)
{
    cpu->ops->norm(cpu, &c->h.norm);
}

static void strict_norm(struct device *d, const struct device_norm *h)
{
    struct call c = {.run = run_norm, .h.norm = *h};
    c.h.norm.dropout = strict_dropout(d, h->dropout);
    c.h.norm.residual = IN(h->residual);
    c.h.norm.delta = IN(h->delta);
    c.h.norm.bias = IN(h->bias);
    c.h.norm.gain = IN(h->gain);
    c.h.norm.shift = IN(h->shift);
    c.h.norm.x = IN(h->x);
    c.h.norm.stats = IN(h->stats);
    c.h.norm.y = IN(h->y);
    strict_keep(d, &c, KEPT_NORM, h->kept);
    strict_call(d, c);
}

static void run_norm_grad(struct device *cpu, const struct call *c)
{
    cpu->ops->norm_grad(cpu, &c->h.norm_grad);
}

static void strict_norm_grad(struct device *d, const struct device_norm_grad *h)
{
    struct call c = {.run = run_norm_grad, .h.norm_grad = *h};
    c.h.norm_grad.dropout = strict_dropout(d, h->dropout);
    c.h.norm_grad.dy = IN(h->dy);
    c.h.norm_grad.x = IN(h->x);
    c.h.norm_grad.stats = IN(h->stats);
    c.h.norm_grad.gain = IN(h->gain);
    c.h.norm_grad.dx = IN(h->dx);
    c.h.norm_grad.dgain = IN(h->dgain);
    c.h.norm_grad.dshift = IN(h->dshift);
    c.h.norm_grad.dbias = IN(h->dbias);
    c.h.norm_grad.ddelta = IN(h->ddelta);
    strict_keep(d, &c, KEPT_NORM_GRAD, h->kept);
    strict_call(d, c);
}

static struct device_attention attention_in(struct device *d, const struct device_attention *h)
{
    struct device_attention g = *h;
    g.dropout = strict_dropout(d, h->dropout);
    g.qkv = IN(h->qkv);
    g.o = IN(h->o);
    g.lse = IN(h->lse);
    return g;
}

static void run_attention(struct device *cpu, const struct call *c)
{
    cpu->ops->attention(cpu, &c->h.attention);
}

static void strict_attention(struct device *d, const struct device_attention *h)
{
    struct call c = {.run = run_attention, .h.attention = attention_in(d, h)};
    strict_keep(d, &c, KEPT_ATTENTION, h->kept);
    strict_call(d, c);
}

static void run_attention_grad(struct device *cpu, const struct call *c)
{
    cpu->ops->attention_grad(cpu, &c->h.attention, c->p[0], c->p[1]);
}

static void strict_attention_grad(struct device *d, const struct device_attention *h, const void *d_o,
                                  void *dqkv)
{
    struct call c = {.run = run_attention_grad, .h.attention = attention_in(d, h), .p = {IN(d_o), IN(dqkv)}};
    strict_keep(d, &c, KEPT_ATTENTION_GRAD, h->kept);
    strict_call(d, c);
}

/* ---- losses */

static void run_cross_entropy(struct device *cpu, const struct call *c)
{
    cpu->ops->cross_entropy(cpu, &c->h.classes);
}

static void strict_cross_entropy(struct device *d, const struct device_classes *h)
{
    struct call c = {.run = run_cross_entropy, .h.classes = *h};
    c.h.classes.label = IN(h->label);
    c.h.classes.x = IN(h->x);
    c.h.classes.dx = IN(h->dx);
    c.h.classes.tally = IN(h->tally);
    strict_keep(d, &c, KEPT_CROSS_ENTROPY, h->kept);
    strict_call(d, c);
}

static void run_mse(struct device *cpu, const struct call *c)
{
    cpu->ops->mse(cpu, c->p[0], c->p[1], c->p[2], c->n[0], c->n[1], c->by, c->p[3]);
}

static void strict_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows,
                       int64_t cols, float scale, struct device_tally *tally)
{
    strict_call(d,
                (struct call){
                    .run = run_mse, .p = {IN(dx), IN(x), IN(y), IN(tally)}, .n = {rows, cols}, .by = scale});
}

static void run_tally_mean(struct device *cpu, const struct call *c)
{
    cpu->ops->tally_mean(cpu, c->p[0], c->p[1], c->real);
}

static void strict_tally_mean(struct device *d, float *to, const struct device_tally *tally, double divisor)
{
    strict_call(d, (struct call){.run = run_tally_mean, .p = {IN(to), IN(tally)}, .real = divisor});
}

/* ---- flat arrays and updates */

static void run_sum_squares(struct device *cpu, const struct call *c)
{
    cpu->ops->sum_squares(cpu, c->p[1], (size_t)c->n[0], c->p[0]);
}

static void strict_sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    strict_call(d, (struct call){.run = run_sum_squares, .p = {IN(out), IN(x)}, .n = {(int64_t)n}});
}

static void run_digest(struct device *cpu, const struct call *c)
{
    uint64_t *sums = c->p[0];
    const float *x = c->p[1];
    int64_t n = c->n[0];
    (void)cpu;
    for (int64_t at = 0; at < n; at += DIGEST_BLOCK)
        *sums++ = digest64_sum(x + at, (size_t)(n - at < DIGEST_BLOCK ? n - at : DIGEST_BLOCK));
}

static void strict_digest(struct device *d, uint64_t *sums, const float *x, size_t n)
{
    strict_call(d, (struct call){.run = run_digest, .p = {IN(sums), IN(x)}, .n = {(int64_t)n}});
}

static void run_clip_scale(struct device *cpu, const struct call *c)
{
    cpu->ops->clip_scale(cpu, c->p[0], c->p[1], c->real);
}

static void strict_clip_scale(struct device *d, float *scale, const double *squares, double clip)
{
    strict_call(d, (struct call){.run = run_clip_scale, .p = {IN(scale), IN(squares)}, .real = clip});
}

static void run_scale(struct device *cpu, const struct call *c)
{
    cpu->ops->scale(cpu, c->p[0], (size_t)c->n[0], c->by);
}

static void strict_scale(struct device *d, float *x, size_t n, float by)
{
    strict_call(d, (struct call){.run = run_scale, .p = {IN(x)}, .n = {(int64_t)n}, .by = by});
}

static void run_add(struct device *cpu, const struct call *c)
{
    cpu->ops->add(cpu, c->p[0], c->p[1], (size_t)c->n[0]);
}

static void strict_add(struct device *d, float *y, const float *x, size_t n)
{
    strict_call(d, (struct call){.run = run_add, .p = {IN(y), IN(x)}, .n = {(int64_t)n}});
}

static void run_sgd(struct device *cpu, const struct call *c)
{
    cpu->ops->sgd(cpu, &c->h.sgd, c->p[0], c->p[1], c->p[2], (size_t)c->n[0]);
}

static void strict_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v,
                       size_t n)
{
    struct call c = {.run = run_sgd, .h.sgd = *h, .p = {IN(p), IN(g), IN(v)}, .n = {(int64_t)n}};
    c.h.sgd.scale = IN(h->scale);
    strict_call(d, c);
}

static void run_adamw(struct device *cpu, const struct call *c)
{
    cpu->ops->adamw(cpu, &c->h.adamw, c->p[0], c->p[1], c->p[2], c->p[3], (size_t)c->n[0]);
}

static void strict_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                         float *v, size_t n)
{
    struct call c = {.run = run_adamw, .h.adamw = *h, .p = {IN(p), IN(g), IN(m), IN(v)}, .n = {(int64_t)n}};
    c.h.adamw.scale = IN(h->scale);
    strict_call(d, c);
}

static void run_muon(struct device *cpu, const struct call *c)
{
    cpu->ops->muon(cpu, &c->h.muon, c->p[0], c->p[1], c->p[2]);
}

static void strict_muon(struct device *d, const struct device_muon *h, float *p, const float *g, float *m)
{
    struct call c = {.run = run_muon, .h.muon = *h, .p = {IN(p), IN(g), IN(m)}};
    c.h.muon.scale = IN(h->scale);
    c.h.muon.room = IN(h->room);
    strict_call(d, c);
}

void strict_operations(struct device_ops *ops)
{
    ops->product = strict_product;
    ops->linear = strict_linear;
    ops->narrow = strict_narrow;
    ops->bias_grad = strict_bias_grad;
    ops->activate = strict_activate;
    ops->activate_grad = strict_activate_grad;
    ops->bias_activate_grad = strict_bias_activate_grad;
    ops->embed = strict_embed;
    ops->embed_grad = strict_embed_grad;
    ops->norm = strict_norm;
    ops->norm_grad = strict_norm_grad;
    ops->attention = strict_attention;
    ops->attention_grad = strict_attention_grad;
    ops->cross_entropy = strict_cross_entropy;
    ops->mse = strict_mse;
    ops->tally_mean = strict_tally_mean;
    ops->sum_squares = strict_sum_squares;
    ops->digest = strict_digest;
    ops->clip_scale = strict_clip_scale;
    ops->scale = strict_scale;
    ops->add = strict_add;
    ops->sgd = strict_sgd;
    ops->adamw = strict_adamw;
    ops->muon = strict_muon;
}
